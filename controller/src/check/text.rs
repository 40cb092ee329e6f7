//! The report for people: a summary, what was assumed, and a paragraph for each cause.

use super::assume::some_of;
use super::report::{Finding, ObjectOutcome, Report, Summary};
use oxigress_core::text::count;
use oxigress_core::text::line::one_line;

/// The whole text. Names and values are users' texts: a terminal gets no control byte of them.
pub fn write(report: &Report, is_quiet: bool) -> String {
    let mut lines = vec![summary(&report.summary)];
    if !is_quiet {
        lines.extend(report.assumed.iter().map(|sentence| format!("assumed: {sentence}")));
        let mut last = None;
        for finding in &report.findings {
            if last.replace(finding.outcome) != Some(finding.outcome) {
                lines.extend([String::new(), title(finding.outcome).into()]);
            }
            lines.extend(paragraph(finding));
        }
    }
    lines.into_iter().map(|line| one_line(&line).to_string() + "\n").collect()
}

fn summary(summary: &Summary) -> String {
    let Summary { objects, ingresses, routes, as_before, different, not_served, .. } = summary;
    let of_requests = match (*ingresses, *routes) {
        (ingresses, 0) => count(ingresses, "Ingress"),
        (0, routes) => count(routes, "route"),
        (ingresses, routes) => {
            format!("{}, {}", count(ingresses, "Ingress"), count(routes, "route"))
        }
    };
    let others = [
        (summary.of_other_controllers, "Ingress"),
        (summary.gateways_of_others, "Gateway"),
        (summary.routes_of_others, "route"),
    ];
    let others = others.iter().filter(|(number, _)| *number > 0);
    let others: Vec<_> = others.map(|(number, noun)| count(*number, noun)).collect();
    let others = match &others[..] {
        [] => String::new(),
        all => format!("; {} of other controllers", all.join(", ")),
    };
    let kinds = summary.not_read.iter().map(|(kind, number)| count(*number, kind));
    let kinds: Vec<_> = kinds.collect();
    let ignored = match &kinds.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => String::new(),
        kinds => format!("; ignored: {}", some_of(kinds)),
    };
    format!(
        "{} ({of_requests}): {as_before} served as before, {different} different, {not_served} not served{others}{ignored}",
        count(*objects, "object"),
    )
}

fn title(outcome: ObjectOutcome) -> &'static str {
    match outcome {
        ObjectOutcome::NotServed => "not served, or in part only:",
        ObjectOutcome::Different => "served, but differently than before or than the object says:",
    }
}

fn paragraph(finding: &Finding) -> [String; 2] {
    let mut names: Vec<&str> = finding.objects.iter().map(|one| one.object.as_str()).collect();
    names.dedup();
    [format!("- {}", finding.cause), format!("    {}", some_of(&names))]
}
