"""Pictures of tools: whole PNGs of a sane size are kept, and the model is told of each what people see."""

from __future__ import annotations

import struct
import zlib

import pytest

from core.gateway import clean
from core.pictures import ALT_CHARS, LONGEST_SIDE, MOST, MOST_BYTES, TITLE_CHARS, admitted, png_size
from core.ports import Picture
from tests.support.png import chunk, png


def told(*given: Picture) -> str:
    return admitted(given, clean)[1]


def test_a_whole_png_is_kept_with_its_words_and_the_model_hears_that_people_see_it() -> None:
    given = Picture("up", "all targets are up", png(640, 400))
    kept, about = admitted([given], clean)
    assert list(kept) == [given]
    assert about == "\n[people see this as a picture in the thread: up]"
    assert admitted([], clean) == ([], "")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"GIF89a" + b"\0" * 40,
        b"\xff\xd8\xff\xe0" + b"\0" * 40,
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        png(64, 64)[:-1],
        png(64, 64)[:40],
        png(64, 64) + b"<script>",
        png(64, 64).replace(b"IHDR", b"iHDR"),
        png(64, 64)[:60] + b"\xff" + png(64, 64)[61:],
        b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""),
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)) + chunk(b"IEND", b""),
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", b"no compressed rows")
        + chunk(b"IEND", b""),
        b"\x89PNG\r\n\x1a\n" + chunk(b"IDAT", zlib.compress(b"\0" * 65)) + chunk(b"IEND", b""),
    ],
)
def test_what_is_no_whole_png_is_left_out_in_words(raw: bytes) -> None:
    assert png_size(raw) is None
    kept, about = admitted([Picture("up", "a", raw)], clean)
    assert not kept and about == "\n[the picture 'up' is left out: it is no whole PNG]"


@pytest.mark.parametrize(
    ("width", "height", "fits"),
    [(16, 16, True), (15, 640, False), (640, 0, False), (LONGEST_SIDE, 100, True), (LONGEST_SIDE + 1, 100, False)],
)
def test_a_picture_has_sane_dimensions(width: int, height: int, fits: bool) -> None:
    kept, about = admitted([Picture("up", "a", png(width, height))], clean)
    assert bool(kept) is fits
    assert fits or f"it has {width} x {height} pixels" in about


def test_a_claimed_size_that_would_fill_the_memory_is_left_out() -> None:
    assert "it has 8000 x 8000 pixels" in told(Picture("up", "a", png(64, 64, claimed=(8_000, 8_000))))


def test_no_more_than_four_of_a_call_and_none_above_the_limit_in_bytes() -> None:
    many = [Picture(f"p{number}", "a", png(64, 64)) for number in range(MOST + 2)]
    kept, about = admitted(many, clean)
    assert [picture.title for picture in kept] == ["p0", "p1", "p2", "p3"]
    assert "[the picture 'p4' is left out: no more than 4 of a call are posted]" in about
    large = Picture("large", "a", png(64, 64, padding=MOST_BYTES))
    assert told(large) == "\n[the picture 'large' is left out: it has 5.0 MB, more than 5 MB]"


def test_a_thousand_pictures_do_not_become_a_thousand_lines() -> None:
    assert len(told(*[Picture("p", "a", b"")] * 1_000).splitlines()) < 20


def test_what_is_no_picture_at_all_is_left_out_in_words() -> None:
    assert told("chart.png") == "\n[the picture '?' is left out: it is no picture]"  # type: ignore[arg-type]
    assert told(Picture("up", "a", "text")) == "\n[the picture 'up' is left out: it is no picture]"  # type: ignore[arg-type]


def test_words_are_one_line_without_secrets_and_of_a_length_that_slack_takes() -> None:
    secret = "xoxb-1234567890-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"
    (kept,), _ = admitted(
        [Picture(f"up\n{secret}\0" + "t" * 500, f"seen {secret}\n" + "a" * 5_000, png(64, 64))], clean
    )
    assert secret not in kept.title + kept.alt
    assert "\n" not in kept.title + kept.alt and "\0" not in kept.title
    assert len(kept.title) == TITLE_CHARS and len(kept.alt) == ALT_CHARS
