//! Flags of metrics.

use clap::{ArgAction, Args};
use oxigress_core::telemetry::metrics::{self, Buckets, Options, PREFIX};

/// What the operator says about metrics.
#[derive(Args, Clone, Debug)]
pub struct MetricsFlags {
    /// Count requests and export them at /metrics, on the port for health checks
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub enable_metrics: bool,
    /// Give metrics of requests a label host
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub metrics_per_host: bool,
    /// Count statuses as 2xx, 3xx and so on
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub report_status_classes: bool,
    /// Bounds of the histograms of times, in seconds: at most 11
    #[arg(long, value_name = "SECONDS", value_parser = time)]
    pub time_buckets: Option<String>,
    /// Bounds of request_size and response_size, in bytes: at most 10
    #[arg(long, value_name = "BYTES", value_parser = length)]
    pub length_buckets: Option<String>,
    /// Bounds of bytes_sent, in bytes: at most 7
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub size_buckets: Option<String>,
    /// Metrics of requests to leave out, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_socket_metrics: Vec<String>,
}

fn time(text: &str) -> Result<String, metrics::InvalidBuckets> {
    Buckets::default().with_time(text).map(|_| text.into())
}

fn length(text: &str) -> Result<String, metrics::InvalidBuckets> {
    Buckets::default().with_length(text).map(|_| text.into())
}

fn size(text: &str) -> Result<String, metrics::InvalidBuckets> {
    Buckets::default().with_size(text).map(|_| text.into())
}

impl MetricsFlags {
    /// The bounds of the histograms.
    pub fn buckets(&self) -> Result<Buckets, metrics::InvalidBuckets> {
        let mut buckets = Buckets::default();
        if let Some(text) = &self.time_buckets {
            buckets = buckets.with_time(text)?;
        }
        if let Some(text) = &self.length_buckets {
            buckets = buckets.with_length(text)?;
        }
        if let Some(text) = &self.size_buckets {
            buckets = buckets.with_size(text)?;
        }
        Ok(buckets)
    }

    /// What the module is asked to tell.
    pub fn options(&self, constant: Vec<(String, String)>) -> Options {
        let excluded = self.exclude_socket_metrics.iter().map(|name| name.trim());
        let excluded = excluded.filter(|name| !name.is_empty());
        Options {
            per_host: self.metrics_per_host,
            status_classes: self.report_status_classes,
            excluded: excluded.map(|n| n.strip_prefix(PREFIX).unwrap_or(n).into()).collect(),
            constant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Flags};
    use clap::Parser;

    fn parse(arguments: &[&str]) -> Result<Flags, clap::Error> {
        Cli::try_parse_from([&["oxigress"], arguments].concat()).map(|cli| cli.flags())
    }

    #[test]
    fn buckets_are_taken_or_refused_with_a_remedy() {
        let flags = parse(&["--time-buckets=0.1,1,2.5", "--size-buckets=1000"]).unwrap().metrics;
        let text = flags.buckets().unwrap().to_string();
        assert!(text.starts_with("time=0.1,1,2.5 length=10,20,") && text.ends_with("size=1000"));
        let many = "--length-buckets=1,2,3,4,5,6,7,8,9,10,11";
        let error = parse(&[many]).unwrap_err().to_string();
        assert!(error.contains("leave out") && error.contains("--length-buckets"), "{error}");
        assert!(parse(&["--time-buckets=1;return"]).is_err());
    }

    #[test]
    fn metrics_are_left_out_by_name_with_and_without_its_prefix() {
        let flag = "--exclude-socket-metrics=request_size,nginx_ingress_controller_bytes_sent";
        let options = parse(&[flag, "--metrics-per-host=false"]).unwrap().metrics.options(vec![]);
        assert_eq!(
            options.excluded.into_iter().collect::<Vec<_>>(),
            ["bytes_sent", "request_size"]
        );
        assert!(!options.per_host);
    }
}
