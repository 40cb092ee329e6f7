use super::written::name;
use super::*;

fn ingress(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, Key::new("shop", name))
}

fn rejected(messages: &[&str]) -> Option<Verdict> {
    let messages = messages.iter().map(|&message| message.to_owned()).collect();
    Some(Verdict { severity: Severity::Rejected, messages })
}

fn event_queue() -> (EventQueue, Instant) {
    let now = Instant::now();
    let mut event_queue = EventQueue::new(true, now);
    event_queue.set_acceptance(Key::new("shop", "a"), Some(Acceptance::Served));
    event_queue.lead(true);
    (event_queue, now)
}

/// Says all that can be said at `now`.
fn report_all(event_queue: &mut EventQueue, now: Instant) -> Vec<String> {
    let mut said = Vec::new();
    while let Ok(draft) = event_queue.next(now, |_| Some("u".into())) {
        said.push(format!("{} {} {}", draft.reason, draft.count, draft.message));
        event_queue.apply(draft, &EventOutcome::Said, now);
    }
    said
}

/// How long it takes until one more may be said.
fn each(rate: Rate) -> Duration {
    rate.period / (rate.full / ONE_TOLD) as u32
}

#[tokio::test]
async fn a_verdict_is_said_once_and_counted_when_it_comes_back() {
    let (mut event_queue, now) = event_queue();
    event_queue.set_verdict(ingress("a"), rejected(&["x", "annotation y: z"]), now);
    let both = ["Rejected 0 x", "AnnotationParsingFailed 0 annotation y: z"];
    assert_eq!(report_all(&mut event_queue, now), both);
    // One half is mended, the other stays and is not said again.
    event_queue.set_verdict(ingress("a"), rejected(&["x"]), now);
    assert!(report_all(&mut event_queue, now).is_empty());
    event_queue.set_verdict(ingress("a"), rejected(&["w"]), now);
    assert_eq!(report_all(&mut event_queue, now), ["Rejected 0 w"]);
    event_queue.set_verdict(ingress("a"), rejected(&["x"]), now);
    assert_eq!(report_all(&mut event_queue, now), ["Rejected 1 x"]);
    event_queue.set_verdict(ingress("a"), None, now);
    assert!(report_all(&mut event_queue, now).is_empty());
}

#[tokio::test]
async fn a_word_worth_knowing_and_what_others_own_are_no_events() {
    let (mut event_queue, now) = event_queue();
    let note = Verdict { severity: Severity::Note, messages: vec!["x".into()] };
    event_queue.set_verdict(ingress("a"), Some(note), now);
    event_queue.set_verdict(ingress("b"), rejected(&["x"]), now);
    event_queue.change(ingress("b"), "Sync", now);
    assert!(report_all(&mut event_queue, now).is_empty());
}

#[tokio::test]
async fn who_begins_to_lead_says_what_was_decided_before_and_followers_are_quiet() {
    let (mut event_queue, now) = event_queue();
    event_queue.lead(false);
    event_queue.set_verdict(ingress("a"), rejected(&["x"]), now);
    event_queue.change(ingress("a"), "Sync", now);
    assert!(report_all(&mut event_queue, now).is_empty());
    event_queue.lead(true);
    assert_eq!(report_all(&mut event_queue, now), ["Rejected 0 x"]);
    event_queue.lead(false);
    event_queue.lead(true);
    assert!(report_all(&mut event_queue, now).is_empty());
}

#[tokio::test]
async fn an_object_that_says_much_waits_and_then_says_its_latest_word() {
    let (mut event_queue, now) = event_queue();
    let mut said = 0;
    for turn in 0..30 {
        event_queue.set_verdict(ingress("a"), rejected(&[&format!("x{turn}")]), now);
        event_queue.change(ingress("a"), "Sync", now);
        said += report_all(&mut event_queue, now).len();
    }
    assert_eq!(said as u64 * ONE_TOLD, TOLD_OF_OBJECT.full);
    let wakes_at = event_queue.next(now, |_| Some("u".into())).unwrap_err().unwrap();
    assert!(wakes_at > now && wakes_at <= now + each(TOLD_OF_OBJECT));
    assert_eq!(report_all(&mut event_queue, wakes_at), ["Rejected 0 x29"]);
}

#[tokio::test]
async fn all_together_say_so_much_and_each_gets_its_turn() {
    let (mut event_queue, mut now) = event_queue();
    for number in 0..150 {
        let name = format!("i{number:03}");
        event_queue.set_acceptance(Key::new("shop", &name), Some(Acceptance::Refused));
        event_queue.set_verdict(ingress(&name), rejected(&["x"]), now);
    }
    assert_eq!(report_all(&mut event_queue, now).len() as u64 * ONE_TOLD, OF_ALL.full);
    // One that says something else each time does not keep the others from pending_event.
    let mut rest = 0;
    for turn in 0..50 {
        event_queue.set_verdict(ingress("i000"), rejected(&[&format!("x{turn}")]), now);
        now += each(OF_ALL);
        rest +=
            report_all(&mut event_queue, now).iter().filter(|said| *said == "Rejected 0 x").count();
    }
    assert!(rest >= 49, "{rest}");
}

#[tokio::test]
async fn a_namespace_with_many_mistakes_does_not_keep_another_from_hearing_of_its_own() {
    let (mut event_queue, mut now) = event_queue();
    for number in 0..500 {
        let name = format!("i{number:03}");
        event_queue.set_acceptance(Key::new("red", &name), Some(Acceptance::Refused));
        let object = ObjectRef::new(Kind::Ingress, Key::new("red", &name));
        event_queue.set_verdict(object, rejected(&["x"]), now);
    }
    assert_eq!(report_all(&mut event_queue, now).len() as u64 * ONE_TOLD, OF_ALL.full);
    event_queue.set_verdict(ingress("a"), rejected(&["of shop"]), now);
    let mut said = Vec::new();
    for _ in 0..2 {
        now += each(OF_ALL);
        said.extend(report_all(&mut event_queue, now));
    }
    assert!(said.contains(&"Rejected 0 of shop".into()), "{said:?}");
}

#[tokio::test]
async fn what_nobody_took_is_said_later_if_it_still_holds() {
    let (mut event_queue, now) = event_queue();
    event_queue.set_verdict(ingress("a"), rejected(&["x"]), now);
    let draft = event_queue.next(now, |_| Some("u".into())).unwrap();
    event_queue.apply(draft, &EventOutcome::Unreachable("down".into()), now);
    let at = event_queue.next(now, |_| Some("u".into())).unwrap_err().unwrap();
    let draft = event_queue.next(at, |_| Some("u".into())).unwrap();
    event_queue.set_verdict(ingress("a"), None, now);
    event_queue.apply(draft, &EventOutcome::Unreachable("down".into()), at);
    assert_eq!(event_queue.next(at + UNREACHABLE[1], |_| Some("u".into())), Err(None));
}

#[tokio::test]
async fn an_ingress_made_anew_is_another_one() {
    let (mut event_queue, now) = event_queue();
    event_queue.set_verdict(ingress("a"), rejected(&["x"]), now);
    let draft = event_queue.next(now, |_| Some("u1".into())).unwrap();
    let other = Draft { uid: "u2".into(), ..draft.clone() };
    assert_ne!(name(&draft, "pod"), name(&other, "pod"));
    assert_eq!(name(&draft, "pod"), name(&draft, "pod2"));
    let change = Draft { is_warning: false, ..draft.clone() };
    assert_ne!(name(&change, "pod"), name(&change, "pod2"));
    event_queue.apply(draft, &EventOutcome::Said, now);
    event_queue.forget(&ingress("a"));
    event_queue.set_verdict(ingress("a"), None, now);
    event_queue.set_verdict(ingress("a"), rejected(&["x"]), now);
    assert_eq!(report_all(&mut event_queue, now), ["Rejected 0 x"]);
    // Nobody says something of which no uid is known.
    event_queue.set_verdict(ingress("a"), rejected(&["y"]), now);
    assert_eq!(event_queue.next(now, |_| None), Err(None));
}

#[tokio::test]
async fn messages_are_one_short_line_and_names_are_names() {
    let long = "é".repeat(2_000);
    let texts = texts(rejected(&["a\nb\u{1b}", &long]).as_ref());
    assert!(texts[0].1.len() <= MAX_BYTES && texts[0].1.starts_with("a\\nb\\u{1b}; é"));
    let mut draft = Draft {
        object: ingress(&format!("{}.x", "a".repeat(235))),
        uid: "u".into(),
        is_warning: true,
        reason: "Rejected",
        message: "m".into(),
        count: 0,
    };
    let named = name(&draft, "pod");
    assert!(named.len() <= 253 && !named.contains(".."), "{named}");
    draft.message = "n".into();
    assert_ne!(name(&draft, "pod"), named);
}
