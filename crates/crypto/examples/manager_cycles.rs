//! Cost of the job manager itself: cycles of the time-stamp counter for a job with neither cipher
//! nor MAC, from asking for it to getting it back.

use std::hint::black_box;

use convoy_crypto::{
    Cpu,
    manager::{Buffer, JobCipher, Manager, Span},
    time_stamp,
};

const JOBS: u64 = 4096;
const ROUNDS: usize = 400;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut packet = [0; 64];
    let mut manager = Manager::best(&Cpu::detect()?);
    let mut buffer = Some(&mut packet[..]);
    let mut figures = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (start, mut returned) = (time_stamp(), 0);
        for number in 0..JOBS as usize {
            let job = manager.next_job();
            job.buffer = Buffer::InPlace(buffer.take().unwrap_or_default());
            job.cipher = JobCipher::Null;
            job.cipher_span = Span::new(0, 0);
            job.user_data = number;
            if let Some(job) = manager.submit() {
                black_box(job.user_data);
                returned += 1;
            }
        }
        while let Some(job) = manager.flush() {
            black_box(job.user_data);
            returned += 1;
        }
        assert_eq!(returned, JOBS);
        figures.push((time_stamp() - start) as f64 / JOBS as f64);
    }
    figures.sort_by(f64::total_cmp);
    let [least, median] = [figures[0], figures[ROUNDS / 2]];
    println!("null cipher, null hash: {median:.1} cycles a job (median), {least:.1} (least)");
    Ok(())
}
