//! What a test has of the machine: programs, folders, ports, processes, a network, and time.

pub mod dist;
pub mod network;
pub mod place;
pub mod process;
pub mod small_disk;
pub mod wait;
