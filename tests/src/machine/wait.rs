//! Waiting on conditions, and the runtime that connections live on.

use crate::network;
use anyhow::{Result, bail};
use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long anything may take that is expected to happen: generous, since the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| new_runtime().expect("a tokio runtime"));

/// Makes the runtime of the machine's own network, which a thread within another one would make there.
pub(crate) fn make_ready() {
    LazyLock::force(&RUNTIME);
}

/// One whose threads live in the calling thread's network.
pub(crate) fn new_runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// The runtime of endpoints, loads and clients, in the network of the calling thread.
pub fn runtime() -> &'static Runtime {
    network::runtime().unwrap_or(&RUNTIME)
}

/// Runs a future from a test's own thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// Polls until `probe` gives a value; its last `Err` is the reason in the message after [`DEADLINE`].
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > DEADLINE => {
                bail!("waited {DEADLINE:?} for {what}: {error:#}")
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Does what [`until`] does for futures.
pub async fn until_async<T, F: Future<Output = Result<T>>>(
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > DEADLINE => {
                bail!("waited {DEADLINE:?} for {what}: {error:#}")
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
