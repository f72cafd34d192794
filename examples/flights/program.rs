//! The command line: options, a progress bar, a table at the end.

use crate::proof::{self, Plan, Report};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

pub fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(error) => return fail(&error),
    };
    let mut shown = 0;
    let report = proof::run(&plan, &mut |done, all| show(done, all, &mut shown));
    println!();
    match report {
        Ok(report) => table(&report),
        Err(error) => fail(&error),
    }
}

fn plan(mut args: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan::default();
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number =
            || value.parse().map_err(|_| format!("{name} needs a whole number, not {value}"));
        match name.as_str() {
            "--url" => plan.url = value,
            "--csv" => plan.csv = value,
            "--rows" => plan.rows = number()?,
            "--threads" => plan.threads = number()?.max(1),
            _ => return Err(format!("{name} is unknown; use --url, --rows, --threads or --csv")),
        }
    }
    Ok(plan)
}

/// A bar on one line of a terminal; a line every tenth elsewhere.
fn show(done: usize, all: usize, shown: &mut usize) {
    let tenths = done * 10 / all.max(1);
    if std::io::stdout().is_terminal() {
        let filled = done * 40 / all.max(1);
        print!("\r  {}{} {done} of {all} rows", "█".repeat(filled), "░".repeat(40 - filled));
        let _ = std::io::stdout().flush();
    } else if tenths > *shown {
        *shown = tenths;
        println!("  {done} of {all} rows");
    }
}

fn table(report: &Report) -> ExitCode {
    let equal = report.counters - report.different.len();
    let seconds = |time: std::time::Duration| format!("{:.1} s", time.as_secs_f64());
    let mut lines = vec![
        ("rows", report.rows.to_string()),
        ("flights", report.flights.to_string()),
        ("locations that counted", report.origins.to_string()),
        ("requests sent", report.requests.to_string()),
        ("replies thrown away", report.thrown_away.to_string()),
        ("requests sent again", report.repeats.to_string()),
        ("time to count", seconds(report.counting)),
        ("time to agree at three locations", seconds(report.converging)),
        ("counters equal to the file", format!("{equal} of {}", report.counters)),
    ];
    let operations =
        report.operations.iter().map(|(name, count)| (name.as_str(), count.to_string()));
    lines.extend(operations);
    for (name, value) in lines {
        println!("  {name:<34} {value:>12}");
    }
    for (key, read) in &report.different {
        println!("  ✗ {key}: {read}");
    }
    if report.different.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("✗ {error}");
    ExitCode::FAILURE
}
