//! What nginx tells of its traffic: totals, from which the page makes rates.
//!
//! nginx is asked only while somebody looks: histograms of many paths are large, and are left out there.

use oxigress_net::socket::get;
use serde_json::{Value, json};
use std::path::Path;

/// With more paths than this the histogram of times is not asked for.
const MOST_ROUTES: u64 = 500;
/// The metrics besides `requests` and the times.
const OTHERS: &str = "connect_duration_seconds,header_duration_seconds,response_duration_seconds,request_size,\
                      response_size,bytes_sent";

/// What is known now; parts that nginx does not tell are null.
pub async fn sample(configuration: &Path, status: &Path, routes: u64) -> Value {
    let live = get(configuration, "/configuration").await.ok();
    let live =
        live.and_then(|body| serde_json::from_slice::<Value>(&body).ok()).unwrap_or_default();
    let page =
        get(status, "/nginx_status").await.map(|page| String::from_utf8_lossy(&page).into_owned());
    let mut target = format!("/metrics?per_host=false&status_classes=true&exclude={OTHERS}");
    let is_timed = routes <= MOST_ROUTES;
    if !is_timed {
        target += ",request_duration_seconds";
    }
    let counted =
        get(configuration, &target).await.map(|text| String::from_utf8_lossy(&text).into_owned());
    json!({
        "generation": live.get("generation"),
        "capacity_bytes": live.get("capacity_bytes"),
        "free_bytes": live.get("free_bytes"),
        "workers": live.get("workers").and_then(Value::as_array).map(Vec::len),
        "last_error": live.get("last_error"),
        "connections": page.ok().and_then(|page| connections(&page)),
        "is_timed": is_timed,
        "requests": counted.ok().map(|text| totals(&text)),
    })
}

/// The number of `Active connections: 3`.
fn connections(page: &str) -> Option<u64> {
    page.lines().find_map(|line| line.strip_prefix("Active connections:")?.trim().parse().ok())
}

/// Requests by class of their status, and the sum of their times where it was asked for.
fn totals(text: &str) -> Value {
    let (mut all, mut errors, mut seconds, mut timed) = (0.0, 0.0, 0.0, 0.0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let name = series.split('{').next().unwrap_or_default();
        if name.ends_with("_controller_requests") {
            all += value;
            errors += if series.contains("status=\"5") { value } else { 0.0 };
        } else if name.ends_with("request_duration_seconds_sum") {
            seconds += value;
        } else if name.ends_with("request_duration_seconds_count") {
            timed += value;
        }
    }
    json!({"all": all, "errors": errors, "seconds": seconds, "timed": timed})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_added_up_over_all_paths() {
        let text = "# TYPE nginx_ingress_controller_requests counter\n\
                    nginx_ingress_controller_requests{path=\"/ a\",status=\"2xx\"} 3\n\
                    nginx_ingress_controller_requests{path=\"/b\",status=\"5xx\"} 2\n\
                    nginx_ingress_controller_request_duration_seconds_bucket{le=\"1\"} 9\n\
                    nginx_ingress_controller_request_duration_seconds_sum{path=\"/b\"} 0.5\n\
                    nginx_ingress_controller_request_duration_seconds_count{path=\"/b\"} 5\n";
        let expected = json!({"all": 5.0, "errors": 2.0, "seconds": 0.5, "timed": 5.0});
        assert_eq!(totals(text), expected);
        assert_eq!(connections("Active connections: 3 \nserver accepts"), Some(3));
    }
}
