"""The default stop words, in the languages that teams use. A word is a word or a phrase, in any case and width.

    step    strong: ends the step and waits for instructions
    task    strong: ends the task
    weak    ends the step, but only as the whole text or right after our mention
    polite  taken out wherever it stands beside such a word; alone it means nothing

Words that people also use to start a sentence about the work ("wait", "moment") are weak. A word belongs here only
if nobody would send it alone, or in front of a comma, without wanting the brake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopWords:
    """The list that is in force. Configuration replaces or extends any of the four sets."""

    step: frozenset[str]
    task: frozenset[str]
    weak: frozenset[str]
    polite: frozenset[str]

    def plus(
        self,
        step: Iterable[str] = (),
        task: Iterable[str] = (),
        weak: Iterable[str] = (),
        polite: Iterable[str] = (),
    ) -> StopWords:
        """This list and what a channel adds to it."""
        return StopWords(self.step | {*step}, self.task | {*task}, self.weak | {*weak}, self.polite | {*polite})


def _words(table: str) -> frozenset[str]:
    lines = [line for line in table.splitlines() if not line.strip().startswith("#")]
    return frozenset(word.strip() for line in lines for word in line.split("|") if word.strip())


STEP = _words(
    """
    # signs
    🛑
    # english
    stop | stop it | stop that | stop this | stop there | stop now | stop right now | stop right there
    stop everything | stop all | stop working | stop immediately | stop here | halt
    # chinese
    停 | 停下 | 停下来 | 停一下 | 停一停 | 停手 | 停止 | 停止执行 | 停掉 | 立即停止
    立刻停止 | 暂停 | 暂停一下 | 刹车 | 急刹车 | 住手 | 打住 | 别动 | 先别执行 | 先别执行了 | 别执行 | 不要执行
    别执行了 | 别再执行 | 别跑了 | 叫停
    # traditional
    停下來 | 暫停 | 暫停一下 | 煞車 | 剎車 | 急煞 | 先別執行 | 別執行 | 不要執行
    別動 | 別跑了
    # japanese
    停止 | 停止して | 一時停止 | ストップ | ストップして | 止めて | 止まって | 止まれ | 止めろ | とめて
    とまって | とまれ | やめて | やめろ | やめ | 実行しないで | 実行するな | 中断 | 中断して
    # korean
    멈춰 | 멈춰줘 | 멈춰요 | 멈춰주세요 | 멈추세요 | 멈춤 | 정지 | 정지해 | 중지 | 중지해 | 중지해줘
    중단 | 중단해 | 중단해줘 | 그만 | 그만해 | 그만해요 | 스톱 | 스탑
    # german
    stopp | halt | anhalten | halt an | sofort anhalten | stoppen | aufhören | hör auf | hoer auf
    # french
    arrête | arrete | arrêtez | arretez | arrêter | arreter | arrête-toi | arrête tout | stoppe
    stoppez | arrêt
    # spanish
    parar | parad | páralo | detente | detén | deten | deténgase | detener | basta | frena
    # portuguese
    pare | pára | parem | pare tudo | interrompa | interromper
    # italian
    ferma | fermo | fermati | fermate | fermatevi | fermare | ferma tutto | basta così | interrompi
    # russian
    стоп | стой | стойте | стоять | остановись | остановитесь | останови | остановите | остановить
    хватит | прекрати | прекратите
    # dutch, polish, turkish
    stoppen | stop maar | hou op | stój | zatrzymaj | zatrzymaj się | przestań | dur | durdur
    """
)

TASK = _words(
    """
    # english
    cancel | cancel it | cancel that | cancel this | cancel everything | cancel all | cancel task
    cancel the task | cancel now | abort | abort it | abort that | abort this | abort everything
    abort task | abort the task | abort now
    # chinese
    取消 | 取消吧 | 取消任务 | 取消这个任务 | 取消执行 | 取消一下 | 全部取消 | 终止 | 终止任务 | 中止
    中止任务 | 放弃任务 | 不做了 | 算了别做了
    # traditional
    取消任務 | 取消這個任務 | 取消執行 | 終止 | 終止任務 | 中止任務
    # japanese
    キャンセル | キャンセルして | 取り消し | 取り消して | 取消し | 取りやめ | 中止して | 打ち切り
    # korean
    취소 | 취소해 | 취소해줘 | 취소해요 | 취소해주세요 | 취소하세요 | 전부 취소
    # german
    abbrechen | abbruch | brich ab | stornieren
    # french
    annule | annulez | annuler | annule tout | abandonne | abandonner
    # spanish
    cancela | cancelar | cancélalo | cancele | cancela todo | aborta | abortar | anula | anular
    # portuguese
    cancele | cancela tudo | aborte | abortar tudo
    # italian
    annulla | annullare | annulla tutto | cancella | abortire
    # russian
    отмена | отмени | отмените | отменить | прервать | прерви | прервите
    # dutch, polish, turkish
    annuleer | annuleren | afbreken | anuluj | przerwij | iptal | iptal et
    """
)

WEAK = _words(
    """
    # english
    wait | wait a minute | wait a second | wait a sec | wait a moment | just wait | wait up | hold on
    hang on | hold it | hold up | hold | hold off | one moment | one second | one sec | just a moment
    just a second | just a sec | pause
    # chinese
    等一下 | 等下 | 等等 | 等一等 | 稍等 | 稍等一下 | 等会 | 等会儿 | 且慢 | 慢着 | 慢点 | 别急 | 先等等
    先等一下
    # traditional
    稍等一下 | 慢點 | 別急 | 等會 | 慢著
    # japanese
    待って | 待って待って | ちょっと待って | ちょっとまって | まって | 待った | 待て | 少々お待ち
    少し待って
    # korean
    잠깐 | 잠깐만 | 잠깐만요 | 잠시만 | 잠시만요 | 기다려 | 기다려줘 | 기다려요 | 기다리세요
    # german
    warte | warte mal | warten | wartet | moment | moment mal | einen moment | sekunde
    # french
    attends | attendez | attendre | un instant | un moment | une seconde | minute | pause
    # spanish
    espera | espere | esperad | esperen | un momento | un segundo | pausa | para | alto
    # portuguese
    espera aí | aguarde | aguarda | um momento | um segundo | peraí | chega
    # italian
    aspetta | aspettate | un attimo | un momento | un secondo | alt
    # russian
    подожди | подождите | погоди | погодите | минутку | секунду | секундочку | пауза
    # dutch, polish, turkish
    wacht | wacht even | czekaj | poczekaj | chwila | bekle
    """
)

POLITE = _words(
    """
    # english
    please | pls | plz | kindly | thanks | thank you | thx | ty | sorry | hey | now
    # chinese
    请 | 請 | 先 | 麻烦 | 麻煩 | 麻烦你 | 麻煩你 | 劳驾 | 拜托 | 拜託 | 谢谢 | 謝謝 | 你 | 吧 | 啊 | 呀
    哦 | 喔 | 啦 | 快 | 赶紧 | 赶快 | 趕快 | 立即 | 立刻 | 马上 | 馬上
    # japanese
    お願い | お願いします | おねがい | おねがいします | ください | 下さい | すぐ | すぐに | 今すぐ
    一旦 | いったん | ありがとう | すみません
    # korean
    제발 | 부탁해 | 부탁해요 | 부탁합니다 | 주세요 | 좀 | 일단 | 당장 | 지금 | 고마워 | 감사합니다
    # german
    bitte | danke | sofort | jetzt | mal
    # french
    s'il te plaît | s'il te plait | s'il vous plaît | s'il vous plait | stp | svp | merci | maintenant
    # spanish
    por favor | gracias | ya | ahora
    # portuguese
    por favor | obrigado | obrigada | agora | já
    # italian
    per favore | per piacere | grazie | subito | ora
    # russian
    пожалуйста | спасибо | сейчас | сейчас же
    """
)

DEFAULT = StopWords(STEP, TASK, WEAK, POLITE)
