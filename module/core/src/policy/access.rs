//! Who may come in: the networks, then the password, then the auth server; all of them, or any of them.
//!
//! Shape:   [`decide`] reads what is known so far ([`Facts`]) and gives a [`Verdict`]. Where something is missing, the verdict
//!          says what to find out, and nginx runs its ACCESS phase again when that is known: then everything is decided again.
//! Source:  ngx_http_core_access_phase for `any`: one that lets in is enough, and 401 comes before 403.

use super::auth;

/// What is known of a request. Each is asked at most once for a decision, and not where the ones before decide.
pub trait Facts {
    /// What the networks say of the client; `None`: the policies name none.
    fn networks(&self) -> Option<bool>;
    /// What is known of the password; `None`: the policies ask for none.
    fn password(&self) -> Option<Password>;
    /// What is known of the auth server's answer; `None`: the policies name no server.
    fn answer(&self) -> Option<Answer>;
    /// A client that the auth server answers 401 is sent to sign in.
    fn signs_in(&self) -> bool;
}

/// What is known of a request's password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Password {
    /// No thread has checked the password yet.
    #[default]
    Unchecked,
    /// A thread is checking the password; the request waits for it.
    Checking,
    /// The password is the user's.
    Right,
    /// It is not, or there is none.
    Wrong,
}

/// What is known of the auth server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server was not asked.
    Unasked,
    /// It was, and has not answered.
    Awaited,
    /// It answered with this status; 0: there was no answer.
    Status(u16),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The policies let the request in.
    Granted,
    /// Somebody finds out what is missing.
    Waits,
    /// The password is to be checked.
    CheckPassword,
    /// The auth server is to be asked.
    AskServer,
    /// A policy refuses the request.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client's address is not among those allowed: the answer is 403.
    Network,
    /// The password: 401, with a challenge.
    Password,
    /// The auth server refuses with this status.
    Server(u16),
    /// The auth server answers 401, and the client is sent to sign in: 302.
    SignIn,
    /// The auth server answered with this status, which says neither yes nor no: 500, whatever else would let in.
    Unclear(u16),
}

impl Refusal {
    /// Where one of the three is enough, a refusal takes the place of an earlier one that says less about how to come in.
    fn replaces(self, earlier: Refusal) -> bool {
        let asks =
            |refusal| matches!(refusal, Refusal::Password | Refusal::Server(401) | Refusal::SignIn);
        self == Refusal::SignIn || asks(self) && !asks(earlier)
    }
}

/// What one of the three says.
enum Gate {
    Passed,
    Closed(Refusal),
    /// It cannot say yet, or at all: that is final, also where one is enough.
    Ends(Verdict),
}

/// Decides whether a request is let in. `any`: one of the three is enough.
pub fn decide(any: bool, facts: &impl Facts) -> Verdict {
    let gates: [&dyn Fn() -> Option<Gate>; 3] =
        [&|| facts.networks().map(of_networks), &|| facts.password().map(of_password), &|| {
            facts.answer().map(|answer| of_answer(answer, facts))
        }];
    let mut refusal: Option<Refusal> = None;
    for gate in gates.iter().filter_map(|gate| gate()) {
        match gate {
            Gate::Passed if any => return Verdict::Granted,
            Gate::Passed => {}
            Gate::Closed(other) if !any => return Verdict::Refused(other),
            Gate::Closed(other) => {
                if refusal.is_none_or(|earlier| other.replaces(earlier)) {
                    refusal = Some(other);
                }
            }
            Gate::Ends(verdict) => return verdict,
        }
    }
    refusal.map_or(Verdict::Granted, Verdict::Refused)
}

fn of_networks(is_admitted: bool) -> Gate {
    if is_admitted { Gate::Passed } else { Gate::Closed(Refusal::Network) }
}

fn of_password(password: Password) -> Gate {
    match password {
        Password::Right => Gate::Passed,
        Password::Wrong => Gate::Closed(Refusal::Password),
        Password::Checking => Gate::Ends(Verdict::Waits),
        Password::Unchecked => Gate::Ends(Verdict::CheckPassword),
    }
}

fn of_answer(answer: Answer, facts: &impl Facts) -> Gate {
    let status = match answer {
        Answer::Unasked => return Gate::Ends(Verdict::AskServer),
        Answer::Awaited => return Gate::Ends(Verdict::Waits),
        Answer::Status(status) => status,
    };
    match auth::verdict(status) {
        auth::Verdict::Allowed => Gate::Passed,
        auth::Verdict::Refused(401) if facts.signs_in() => Gate::Closed(Refusal::SignIn),
        auth::Verdict::Refused(status) => Gate::Closed(Refusal::Server(status)),
        auth::Verdict::Broken => Gate::Ends(Verdict::Refused(Refusal::Unclear(status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    struct Known {
        networks: Option<bool>,
        password: Option<Password>,
        answer: Option<Answer>,
        signs_in: bool,
    }

    impl Facts for Known {
        fn networks(&self) -> Option<bool> {
            self.networks
        }
        fn password(&self) -> Option<Password> {
            self.password
        }
        fn answer(&self) -> Option<Answer> {
            self.answer
        }
        fn signs_in(&self) -> bool {
            self.signs_in
        }
    }

    const NOTHING: Known = Known { networks: None, password: None, answer: None, signs_in: false };
    const STATUSES: [u16; 6] = [0, 200, 204, 401, 403, 500];

    #[test]
    fn where_all_count_the_first_that_refuses_answers() {
        let wrong = Known { password: Some(Password::Wrong), ..NOTHING };
        assert_eq!(decide(false, &wrong), Verdict::Refused(Refusal::Password));
        let both = Known { networks: Some(false), ..wrong };
        assert_eq!(decide(false, &both), Verdict::Refused(Refusal::Network));
        let unasked = Known { answer: Some(Answer::Unasked), ..both };
        assert_eq!(decide(false, &unasked), Verdict::Refused(Refusal::Network), "nobody is asked");
    }

    #[test]
    fn where_one_is_enough_the_refusal_tells_how_to_come_in() {
        let closed = Known { networks: Some(false), password: Some(Password::Wrong), ..NOTHING };
        assert_eq!(decide(true, &closed), Verdict::Refused(Refusal::Password));
        let server = Known { answer: Some(Answer::Status(401)), ..closed };
        assert_eq!(decide(true, &server), Verdict::Refused(Refusal::Password));
        let signing_in = Known { signs_in: true, ..server };
        assert_eq!(decide(true, &signing_in), Verdict::Refused(Refusal::SignIn));
        let forbidden = Known { password: None, answer: Some(Answer::Status(403)), ..server };
        assert_eq!(decide(true, &forbidden), Verdict::Refused(Refusal::Network));
    }

    #[test]
    fn an_unclear_answer_lets_nobody_in_and_a_right_password_comes_before_it() {
        let unclear = Known { answer: Some(Answer::Status(500)), ..NOTHING };
        let refused = Verdict::Refused(Refusal::Unclear(500));
        assert_eq!(decide(true, &unclear), refused);
        assert_eq!(decide(true, &Known { networks: Some(false), ..unclear }), refused);
        assert_eq!(decide(true, &Known { networks: Some(true), ..unclear }), Verdict::Granted);
    }

    fn known() -> impl Strategy<Value = Known> {
        let passwords = [Password::Unchecked, Password::Checking, Password::Right, Password::Wrong];
        let mut answers = vec![Answer::Unasked, Answer::Awaited];
        answers.extend(STATUSES.map(Answer::Status));
        (
            any::<Option<bool>>(),
            proptest::option::of(proptest::sample::select(passwords.to_vec())),
            proptest::option::of(proptest::sample::select(answers)),
            any::<bool>(),
        )
            .prop_map(|(networks, password, answer, signs_in)| Known {
                networks,
                password,
                answer,
                signs_in,
            })
    }

    proptest! {
        /// Nobody comes in but by what the policies ask for: by all of it, or by one of it.
        #[test]
        fn nobody_comes_in_by_anything_else(known in known(), any: bool) {
            let passed = [
                known.networks,
                known.password.map(|password| password == Password::Right),
                known.answer.map(|answer| matches!(answer, Answer::Status(200..=299))),
            ];
            let mut asked = passed.iter().flatten();
            let may_come_in = match any {
                true => asked.clone().count() == 0 || asked.any(|passed| *passed),
                false => asked.all(|passed| *passed),
            };
            let verdict = decide(any, &known);
            prop_assert!(verdict != Verdict::Granted || may_come_in, "{verdict:?}");
            let is_known = !matches!(known.password, Some(Password::Unchecked | Password::Checking))
                && !matches!(known.answer, Some(Answer::Unasked | Answer::Awaited));
            let waits =
                matches!(verdict, Verdict::Waits | Verdict::CheckPassword | Verdict::AskServer);
            prop_assert!(!(waits && is_known), "{verdict:?}");
            prop_assert!(!is_known || any || (verdict == Verdict::Granted) == may_come_in, "{verdict:?}");
        }
    }
}
