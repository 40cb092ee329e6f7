//! nginx, the controller and the chart, as each is started and asked.

pub mod chart;
pub mod controller;
pub mod genuine;
pub mod manifest;
pub mod nginx;
pub mod prometheus;
pub mod shipped;
pub mod shop;
pub mod site;
