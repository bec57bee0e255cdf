//! The scenario of ../README.md with sqlx: PgListener, which reconnects by itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use tokio::time::timeout;

const CHANNEL: &str = "orders";
const WOKEN: usize = 20; // one after the other, each when nothing else is to be done
const WRITERS: usize = 4;
const TRANSACTIONS: usize = 25; // of each writer
const ROWS_PER_TRANSACTION: usize = 10;
const ROWS: usize = WRITERS * TRANSACTIONS * ROWS_PER_TRANSACTION;
const RETRY: Duration = Duration::from_millis(250);
const OTHERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

const VERSION: &str = include_str!("../Cargo.toml");

/// These payloads in one transaction, which commits or not.
async fn send(pool: &PgPool, payloads: &[String], commit: bool) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    for payload in payloads {
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(payload)
            .execute(&mut *transaction)
            .await?;
    }
    if commit {
        transaction.commit().await
    } else {
        transaction.rollback().await
    }
}

/// What listens, where it is in the scenario, and how long it waits.
struct Scenario {
    pool: PgPool,
    listener: PgListener,
    deadline: Duration,
    step: &'static str,
}

impl Scenario {
    fn fail(&self, message: String) -> ! {
        eprintln!("sqlx: {}: {message}", self.step);
        std::process::exit(1)
    }

    fn must<T>(&self, result: Result<T, sqlx::Error>) -> T {
        result.unwrap_or_else(|error| self.fail(error.to_string()))
    }

    async fn send(&self, payloads: &[String], commit: bool) {
        self.must(send(&self.pool, payloads, commit).await)
    }

    /// The next payload; the connection must not break.
    async fn next(&mut self) -> String {
        match timeout(self.deadline, self.listener.try_recv()).await {
            Err(_) => self.fail(format!("nothing was heard within {:?}", self.deadline)),
            Ok(Err(error)) => self.fail(error.to_string()),
            Ok(Ok(None)) => self.fail("the connection broke".to_string()),
            Ok(Ok(Some(notification))) => notification.payload().to_string(),
        }
    }

    async fn expect(&mut self, payload: &str) {
        let heard = self.next().await;
        if heard != payload {
            self.fail(format!("heard {heard:?} instead of {payload:?}"))
        }
    }

    async fn woken(&mut self) {
        for n in 0..WOKEN {
            let payload = format!("woken {n}");
            self.send(&[payload.clone()], true).await;
            self.expect(&payload).await;
        }
    }

    /// Several writers at once; the order of each must be kept. Gives rows per second.
    async fn burst(&mut self) -> f64 {
        let began = Instant::now();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let pool = self.pool.clone();
                tokio::spawn(async move {
                    for first in (0..TRANSACTIONS).map(|i| i * ROWS_PER_TRANSACTION) {
                        let rows: Vec<_> = (first..first + ROWS_PER_TRANSACTION)
                            .map(|seq| format!("{writer} {seq}"))
                            .collect();
                        send(&pool, &rows, true).await?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut expected = HashMap::new();
        for _ in 0..ROWS {
            let heard = self.next().await;
            let (writer, seq) = heard.split_once(' ').unwrap_or_default();
            let wanted: &mut usize = expected.entry(writer.to_string()).or_default();
            if *seq != wanted.to_string() {
                self.fail(format!("writer {writer}: heard {seq} instead of {wanted}"))
            }
            *wanted += 1;
        }
        for writer in writers {
            self.must(writer.await.expect("a writer panicked"))
        }
        ROWS as f64 / began.elapsed().as_secs_f64()
    }

    async fn rollback(&mut self) {
        self.send(&["rolled back".to_string()], false).await;
        self.send(&["committed".to_string()], true).await;
        self.expect("committed").await;
    }

    /// All connections break. Something is heard again, and from then on everything.
    async fn reconnect(&mut self) {
        let terminated = sqlx::query(OTHERS).execute(&self.pool).await;
        self.must(terminated);
        let began = Instant::now();
        let mut breaks = 0;
        let mut tries = 0;
        loop {
            // One that is dropped while it connects again never tells of the break.
            let mut receiving = Box::pin(self.listener.try_recv());
            let mut received = None;
            while received.is_none() && began.elapsed() < self.deadline {
                tries += 1;
                if let Err(error) = send(&self.pool, &[format!("try {tries}")], true).await {
                    eprintln!("sqlx: not sent: {error}");
                }
                received = timeout(RETRY, &mut receiving).await.ok();
            }
            drop(receiving);
            match received {
                Some(Ok(Some(_))) => break,
                Some(Ok(None)) => breaks += 1,
                Some(Err(error)) => eprintln!("sqlx: not received: {error}"),
                None => self.fail("nothing is heard any more".to_string()),
            }
        }
        if breaks != 1 {
            self.fail(format!("it has told of {breaks} breaks"))
        }
        self.send(&["after reconnecting".to_string()], true).await;
        while self.next().await != "after reconnecting" {}
    }
}

/// The one that Cargo.toml pins.
fn version() -> &'static str {
    let (_, after) = VERSION.split_once("sqlx = { version = \"=").expect("no sqlx in Cargo.toml");
    after.split_once('"').expect("no version in Cargo.toml").0
}

#[tokio::main]
async fn main() {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL is not set");
    let deadline = std::env::var("DEADLINE_S").expect("DEADLINE_S is not set");
    let pool = PgPoolOptions::new()
        .max_connections(WRITERS as u32)
        .connect(&url)
        .await
        .expect("no connection");
    let mut listener = PgListener::connect(&url).await.expect("no connection");
    listener.listen(CHANNEL).await.expect("LISTEN failed");
    let deadline = Duration::from_secs(deadline.parse().expect("DEADLINE_S is no number"));
    let mut scenario = Scenario { pool, listener, deadline, step: "woken" };
    scenario.woken().await;
    scenario.step = "burst";
    let per_second = scenario.burst().await;
    scenario.step = "rollback";
    scenario.rollback().await;
    scenario.step = "reconnect";
    scenario.reconnect().await;
    println!(
        "{{\"framework\": \"sqlx\", \"version\": \"{}\", \"per_second\": {per_second:.0}, \
         \"steps\": [\"woken\", \"burst\", \"rollback\", \"reconnect\"]}}",
        version()
    );
}
