//! Routes change at a fixed rate while clients send requests to the hosts of all of them.

use super::{ROUTES, host};
use crate::http::Client;
use crate::product::{Oxigress, Requests};
use crate::report::Table;
use crate::sample::{Sample, show};
use anyhow::{Result, anyhow};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Changes of routes a second, and for how long.
const RATE: usize = 100;
const SECONDS: usize = 60;
/// Threads that change routes: a write to an API server waits for its answer.
const WRITERS: usize = 16;
/// Connections that send requests meanwhile.
const CLIENTS: usize = 4;
/// Between two requests of a connection: without a pause they would leave the API server no processor for the changes.
const BETWEEN: Duration = Duration::from_millis(4);

/// The requests of clients meanwhile.
#[derive(Default)]
struct Load {
    failed: AtomicUsize,
    is_over: AtomicBool,
}

/// Has `change` write the routes, by number and turn, and tells how many changes there were and what became of the requests. `of` names the source in the
/// rows.
pub fn under_changes(
    change: &(impl Fn(usize, usize) -> Result<()> + Sync),
    of: &str,
    oxigress: &Oxigress,
    requests: &mut Requests,
    table: &mut Table,
) -> Result<()> {
    let (load, port) = (Load::default(), oxigress.http_port);
    let (changes, times, took) = thread::scope(|scope| -> Result<_> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn({
                    let load = &load;
                    move || ask(load, port, client)
                })
            })
            .collect();
        let start = Instant::now();
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(change, writer, start))).collect();
        let joined = writers
            .into_iter()
            .map(|it| it.join().map_err(|_| anyhow!("a writer has panicked"))?);
        let changes = joined.collect::<Result<Vec<usize>>>();
        let took = start.elapsed();
        load.is_over.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for client in clients {
            times.extend(client.join().map_err(|_| anyhow!("a client has panicked"))?);
        }
        Ok((changes?, times, took))
    })?;
    // The last change of the first writer: all before it are served then.
    let last = changes.first().copied().unwrap_or(1).max(1) - 1;
    let (number, seen) = (last * WRITERS % ROUTES, format!("x-turn: {}\n", last + 1));
    let start = Instant::now();
    requests.until(&host(number), "/", |answer| {
        String::from_utf8_lossy(&answer.body).contains(&seen)
    })?;
    let all: usize = changes.iter().sum();
    let times: Sample = times.into_iter().collect();
    let failed = load.failed.load(Ordering::Relaxed);
    table.row(
        &format!("changes of routes under load{of}"),
        format!("{all} in {}: {:.0}/s", show(took), all as f64 / took.as_secs_f64()),
    );
    table.row(&format!("the last of them to served{of}"), show(start.elapsed()));
    table
        .row(
            &format!("requests meanwhile{of}; failed"),
            format!("{}; {failed}", times.len() + failed),
        )
        .peer(format!("p50 {}, p99.9 {}", show(times.p50()), show(times.quantile(0.999))))
        .budget("0 failed", failed == 0);
    Ok(())
}

/// Changes every [`WRITERS`]th route at its part of the rate; answers how many changes there were.
fn write(
    change: &impl Fn(usize, usize) -> Result<()>,
    writer: usize,
    start: Instant,
) -> Result<usize> {
    let (mut done, pause) = (0, Duration::from_secs(1) * WRITERS as u32 / RATE as u32);
    while start.elapsed() < Duration::from_secs(SECONDS as u64) {
        if let Some(early) = (pause * done as u32).checked_sub(start.elapsed()) {
            thread::sleep(early);
        }
        change((done * WRITERS + writer) % ROUTES, 1 + done)?;
        done += 1;
    }
    Ok(done)
}

/// Asks for hosts of all routes, one after the other, until it is over; answers how long each request took that did not fail.
fn ask(load: &Load, port: u16, client: usize) -> Vec<Duration> {
    let (mut times, mut connection, began) = (Vec::new(), None, Instant::now());
    for turn in 0.. {
        if load.is_over.load(Ordering::Relaxed) {
            break;
        }
        let host = host((turn * CLIENTS + client) % ROUTES);
        thread::sleep((BETWEEN * turn as u32).saturating_sub(began.elapsed()));
        let start = Instant::now();
        let answer = match connection.take() {
            Some(open) => Ok(open),
            None => Client::tcp(port),
        };
        let answer = answer.and_then(|mut open| {
            let answer = open.get_ok(&host, "/")?;
            Ok((open, answer))
        });
        match answer {
            Ok((open, answer)) => {
                times.push(start.elapsed());
                connection = Some(open).filter(|_| !answer.is_last);
            }
            Err(error) => {
                // All of them are counted, and the first ones tell what it is.
                if load.failed.fetch_add(1, Ordering::Relaxed) < 5 {
                    eprintln!("bench: {host}: {error:#}");
                }
            }
        }
    }
    times
}
