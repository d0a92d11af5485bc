/* The short names that people and bots use in incident channels. Others stay as they were written. */

const TABLE = `
+1 👍|thumbsup 👍|-1 👎|thumbsdown 👎|100 💯|alarm_clock ⏰|ambulance 🚑|anchor ⚓|arrow_down ⬇️|arrow_forward ▶️
arrow_left ⬅️|arrow_right ➡️|arrow_right_hook ↪️|arrows_counterclockwise 🔄|arrow_up ⬆️|art 🎨|ballot_box_with_check ☑️
bangbang ‼️|bar_chart 📊|bell 🔔|black_circle_for_record ⏺️|black_square_for_stop ⏹️|blue_heart 💙|bookmark 🔖|books 📚
boom 💥|brain 🧠|broom 🧹|bug 🐛|bulb 💡|calendar 📅|chart_with_downwards_trend 📉|chart_with_upwards_trend 📈|clap 👏
clipboard 📋|clock1 🕐|closed_lock_with_key 🔐|computer 💻|construction 🚧|cry 😢|cyclone 🌀|dart 🎯|double_vertical_bar ⏸️
ear 👂|exclamation ❗|eye 👁️|eyes 👀|face_with_monocle 🧐|fast_forward ⏩|file_folder 📁|fire 🔥|fire_engine 🚒|gear ⚙️
ghost 👻|green_heart 💚|grin 😁|hammer 🔨|hammer_and_wrench 🛠️|hand ✋|heart ❤️|heavy_check_mark ✔️|heavy_minus_sign ➖
heavy_plus_sign ➕|helm_symbol ☸️|hourglass ⌛|hourglass_flowing_sand ⏳|inbox_tray 📥|information_source ℹ️|joy 😂|key 🔑
large_blue_circle 🔵|large_green_circle 🟢|large_orange_circle 🟠|large_red_circle 🔴|large_yellow_circle 🟡|link 🔗|lock 🔒
mag 🔍|mag_right 🔎|mailbox 📫|mega 📣|memo 📝|moneybag 💰|muscle 💪|mute 🔇|no_bell 🔕|no_entry ⛔|no_entry_sign 🚫
octagonal_sign 🛑|ok ✅|ok_hand 👌|open_hands 👐|package 📦|page_facing_up 📄|paperclip 📎|partying_face 🥳
pause_button ⏸️|pencil 📝|pencil2 ✏️|person_in_lotus_position 🧘|point_down 👇|point_right 👉|point_up ☝️|postbox 📮
pray 🙏|pushpin 📌|question ❓|raised_hand ✋|raised_hands 🙌|recycle ♻️|red_circle 🔴|repeat 🔁|robot_face 🤖|rocket 🚀
rotating_light 🚨|sailboat ⛵|satellite 📡|see_no_evil 🙈|shield 🛡️|ship 🚢|shrug 🤷|simple_smile 🙂|skull 💀|sleeping 😴
slightly_smiling_face 🙂|smile 😄|sob 😭|sos 🆘|sparkles ✨|speech_balloon 💬|spiral_note_pad 🗒️|star ⭐|stop_sign 🛑
stopwatch ⏱️|sunglasses 😎|tada 🎉|test_tube 🧪|thinking_face 🤔|ticket 🎫|timer_clock ⏲️|traffic_light 🚥|truck 🚚
unlock 🔓|vertical_traffic_light 🚦|warning ⚠️|wastebasket 🗑️|watch ⌚|wave 👋|white_check_mark ✅|white_circle ⚪|whale 🐳
wrench 🔧|writing_hand ✍️|x ❌|yellow_heart 💛|zap ⚡|zzz 💤|bust_in_silhouette 👤|busts_in_silhouette 👥|abacus 🧮
leftwards_arrow_with_hook ↩️|left_right_arrow ↔️|incoming_envelope 📨|outbox_tray 📤|triangular_flag_on_post 🚩
`;

const BY_NAME = new Map(TABLE.trim().split(/[|\n]/).map((row) => row.split(" ")));

/** The character for `:name:`, or null for a name that this table does not know. */
export function emoji(name) {
  return BY_NAME.get(name.replace(/::skin-tone-\d$/, "").toLowerCase()) ?? null;
}
