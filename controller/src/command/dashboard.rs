//! `oxigress dashboard`: opens the page in a browser.

use crate::flags::DASHBOARD;
use anyhow::anyhow;
use clap::Args;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use tokio::net::TcpStream;

/// The port of the dashboard where --dashboard-address is not given.
pub const PORT: &str = "10253";

/// The address of the dashboard, and whether a browser opens it.
#[derive(Args, Debug)]
pub struct DashboardArgs {
    /// What --dashboard-address of the program says
    #[arg(long, value_name = "ADDRESS", default_value = DASHBOARD)]
    address: SocketAddr,
    /// Print the address only
    #[arg(long)]
    no_browser: bool,
}

/// The address of the page, once a browser was asked to open it.
pub async fn open(arguments: &DashboardArgs) -> anyhow::Result<String> {
    let url = format!("http://{}/", arguments.address);
    TcpStream::connect(arguments.address).await.map_err(|error| {
        anyhow!(
            "cannot connect to {url}: {error}: check that oxigress runs here with this --dashboard-address"
        )
    })?;
    if !arguments.no_browser {
        let mut browser = Command::new("xdg-open");
        browser.arg(&url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without a desktop the address is what there is.
        drop(browser.spawn());
    }
    Ok(format!("{url}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_address() {
        assert_eq!(DASHBOARD.rsplit_once(':').map(|(_, port)| port), Some(PORT));
    }
}
