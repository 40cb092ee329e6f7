//! The comparison: each request to both gateways, several at once.

use crate::answer::{Difference, differences};
use crate::gateway::Gateway;
use crate::known;
use crate::report::Report;
use crate::requests::{Request, Requests};
use crate::routes::Routes;
use futures_util::stream::{self, StreamExt};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How the gateways are asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most requests that are under way at once.
    pub concurrency: usize,
    /// The most requests in a second to each gateway; 0 sets no limit.
    pub rate: u32,
    /// How long a gateway may take for one answer.
    pub timeout: Duration,
    /// Headers that every request has.
    pub headers: Vec<(String, String)>,
    /// Headers of answers that are not compared, in lower case.
    pub ignored: BTreeSet<String>,
}

/// How far the comparison is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Requests that both have answered.
    pub done: usize,
    /// The number of all requests.
    pub all: usize,
    /// Those with differences that are not documented.
    pub different: usize,
}

/// The reason for which nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A gateway does not listen.
    #[error("{gateway}: {why}: check that this is the gateway's address")]
    Gateway {
        /// The gateway, as the command line names it.
        gateway: String,
        /// What happened to the connection.
        why: String,
    },
    /// There is nothing to ask.
    #[error("no request to ask: {0}")]
    Nothing(String),
}

/// What became of one request.
#[derive(Debug)]
pub struct ComparedRequest {
    /// In what the answers differ, documented differences included.
    pub differences: Vec<Difference>,
    /// Whether a gateway answered differently when it was asked again.
    pub is_unstable: bool,
    /// Whether neither gateway answered.
    pub is_unanswered: bool,
}

/// Asks both gateways, and reports. `progress` is called after each request.
pub async fn compare(
    gateways: (&Gateway, &Gateway),
    requests: Requests,
    routes: &Routes,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<Report, CompareError> {
    let (old, new) = gateways;
    let all = requests.all.len();
    if all == 0 {
        let skipped = requests.skipped.iter().map(|(why, count)| format!("{count} × {why}"));
        let skipped: Vec<String> = skipped.collect();
        return Err(CompareError::Nothing(match skipped.is_empty() {
            true => "the source has none".into(),
            false => skipped.join(", "),
        }));
    }
    let is_https = requests.all.iter().all(|request| request.is_https);
    for gateway in [old, new] {
        let why = gateway.connect(is_https).await.err();
        if let Some(why) = why {
            return Err(CompareError::Gateway { gateway: gateway.to_string(), why });
        }
    }
    let pace = pace(options.rate).map(Mutex::new);
    let mut report = Report { skipped: requests.skipped, ..Report::default() };
    let outcomes = stream::iter(requests.all).map(|request| async {
        if let Some(pace) = &pace {
            pace.lock().await.tick().await;
        }
        let outcome = ask_both(old, new, &request, options).await;
        (request, outcome)
    });
    let mut outcomes = Box::pin(outcomes.buffer_unordered(options.concurrency.max(1)));
    let mut done = 0;
    while let Some((request, outcome)) = outcomes.next().await {
        count(&mut report, &request, outcome, routes);
        done += 1;
        progress(Progress { done, all, different: report.different });
    }
    Ok(report)
}

fn pace(rate: u32) -> Option<Interval> {
    let mut pace = interval(Duration::from_secs(1).checked_div(rate)?);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(pace)
}

/// Asks both gateways once, and again where their answers differ, since an endpoint may say something new each time.
pub async fn ask_both(
    old: &Gateway,
    new: &Gateway,
    request: &Request,
    options: &Options,
) -> ComparedRequest {
    let ask = |gateway: &Gateway| {
        let gateway = gateway.clone();
        async move { gateway.ask(request, &options.headers, options.timeout).await }
    };
    let ignored = &options.ignored;
    let (before, now) = tokio::join!(ask(old), ask(new));
    let mut found = differences(&before, &now, ignored);
    let is_unanswered = before.is_err() && now.is_err();
    let all = found.len();
    if found.iter().any(|one| known::find(request, one, &found).is_none()) {
        // What an endpoint says anew each time, such as the time of day, is no difference of the gateways.
        let (again, now_again) = tokio::join!(ask(old), ask(new));
        let changing = differences(&before, &again, ignored);
        let changing = changing.into_iter().chain(differences(&now, &now_again, ignored));
        let changing: BTreeSet<_> = changing.map(|one| one.aspect).collect();
        found.retain(|one| !changing.contains(&one.aspect));
    }
    ComparedRequest { is_unstable: found.len() < all, differences: found, is_unanswered }
}

fn count(report: &mut Report, request: &Request, outcome: ComparedRequest, routes: &Routes) {
    let ComparedRequest { differences, is_unstable, is_unanswered } = outcome;
    let mut is_different = false;
    for one in &differences {
        match known::find(request, one, &differences) {
            Some(known) => report.add_known(known),
            None => {
                is_different = true;
                report.add(routes.name(request), request, one);
            }
        }
    }
    report.requests += 1;
    let counter = match (is_different, is_unstable, is_unanswered, differences.is_empty()) {
        (true, ..) => &mut report.different,
        (_, true, ..) => &mut report.unstable,
        (_, _, true, _) => &mut report.unanswered,
        (_, _, _, true) => &mut report.same,
        (..) => &mut report.documented,
    };
    *counter += 1;
}
