//! The scenario of ../README.md with tokio-postgres: poll_message() of the connection.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Notification};

const WRITERS: i32 = 4;
const ROWS_PER_TRANSACTION: i32 = 10;
const WAITING_TRANSACTIONS: i32 = 400; // of each writer, while the listener only waits
const BUSY_TRANSACTIONS: i32 = 100; // of each writer, while the listener runs statements
const DEADLINE: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Connects as the environment says; the receiver ends with the connection.
async fn connect() -> Outcome<(Client, UnboundedReceiver<Notification>)> {
    let mut config = Config::new();
    config
        .host(env::var("PGHOST")?)
        .port(env::var("PGPORT")?.parse()?);
    config
        .user(env::var("PGUSER")?)
        .dbname(env::var("PGDATABASE")?);
    let (client, mut connection) = config.connect(NoTls).await?;
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification); // nobody may be interested any more
            }
        }
    });
    Ok((client, receiver))
}

/// At most 40 characters of a payload.
fn short(payload: &str) -> String {
    payload.chars().take(40).collect()
}

/// A connection that listens, and what it has heard.
struct Listener {
    client: Client,
    arrived: UnboundedReceiver<Notification>,
    pid: i32,
    heard: i32,
    last_seq: BTreeMap<i32, i32>,
}

impl Listener {
    async fn new() -> Outcome<Listener> {
        let (client, arrived) = connect().await?;
        let last_seq = (1..=WRITERS).map(|writer| (writer, 0)).collect();
        let mut listener = Listener {
            client,
            arrived,
            pid: 0,
            heard: 0,
            last_seq,
        };
        listener.listen().await?;
        Ok(listener)
    }

    async fn reconnect(&mut self) -> Outcome<()> {
        (self.client, self.arrived) = connect().await?;
        self.listen().await
    }

    async fn listen(&mut self) -> Outcome<()> {
        self.pid = self
            .client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get(0);
        self.client.batch_execute("LISTEN events").await?;
        Ok(())
    }

    /// The next notification, without running a statement; None if the connection has ended.
    async fn next(&mut self) -> Outcome<Option<Notification>> {
        match timeout(DEADLINE, self.arrived.recv()).await {
            Ok(notification) => Ok(notification),
            Err(_) => Err(format!(
                "nothing came within {DEADLINE:?}; heard {} so far",
                self.heard
            )
            .into()),
        }
    }

    /// The next notification must have this payload; gives its sender.
    async fn expect(&mut self, payload: &str) -> Outcome<i32> {
        let notification = self.next().await?.ok_or("the connection ended")?;
        if notification.channel() != "events" || notification.payload() != payload {
            let (heard, wanted) = (short(notification.payload()), short(payload));
            return Err(format!(
                "heard {heard:?} on {} instead of {wanted:?}",
                notification.channel()
            )
            .into());
        }
        self.heard += 1;
        Ok(notification.process_id())
    }

    /// Each writer's rows must come in order, none lost and none doubled.
    fn take_row(&mut self, notification: &Notification) -> Outcome<()> {
        let payload = notification.payload();
        let unknown = || format!("heard {:?} during the load", short(payload));
        let (writer, seq) = payload.split_once(' ').ok_or_else(unknown)?;
        let (writer, seq): (i32, i32) = (writer.parse()?, seq.parse()?);
        let last = self.last_seq.get_mut(&writer).ok_or_else(unknown)?;
        if seq != *last + 1 {
            return Err(format!("writer {writer}: heard row {seq} after row {last}").into());
        }
        *last = seq;
        self.heard += 1;
        Ok(())
    }

    /// Runs statements, and takes what came with their results.
    async fn run_a_transaction(&mut self) -> Outcome<()> {
        let transaction = self.client.transaction().await?;
        transaction
            .query("SELECT count(*) FROM pg_class WHERE oid > $1", &[&0u32])
            .await?;
        transaction.commit().await?;
        while let Ok(notification) = self.arrived.try_recv() {
            self.take_row(&notification)?;
        }
        Ok(())
    }
}

/// One writer's part of a load, from row `seq` on.
async fn write_rows(writer: i32, seq: i32, transactions: i32) -> Outcome<()> {
    let (mut client, _) = connect().await?;
    let insert = "INSERT INTO event SELECT $1, s FROM generate_series($2::int, $3::int) s";
    let insert = client.prepare(insert).await?;
    for i in 0..transactions {
        let first = seq + i * ROWS_PER_TRANSACTION;
        let last = first + ROWS_PER_TRANSACTION - 1;
        let transaction = client.transaction().await?;
        transaction
            .execute(&insert, &[&writer, &first, &last])
            .await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// All writers at once, each on a connection of its own, and the listener beside them.
async fn load(listener: &mut Listener, transactions: i32, busy: bool) -> Outcome<()> {
    let wanted = listener.heard + WRITERS * transactions * ROWS_PER_TRANSACTION;
    let writers: Vec<_> = listener
        .last_seq
        .iter()
        .map(|(&writer, &last)| tokio::spawn(write_rows(writer, last + 1, transactions)))
        .collect();
    while listener.heard < wanted {
        if busy {
            listener.run_a_transaction().await?;
        } else {
            let notification = listener.next().await?.ok_or("the connection ended")?;
            listener.take_row(&notification)?;
        }
    }
    for writer in writers {
        writer.await??;
    }
    Ok(())
}

/// The version that Cargo.lock pins.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let own = lock.split("name = \"tokio-postgres\"\nversion = \"").nth(1);
    own.and_then(|rest| rest.split('"').next())
        .unwrap_or("unknown")
}

async fn scenario() -> Outcome<()> {
    let mut listener = Listener::new().await?;
    let (mut other, _) = connect().await?;
    load(&mut listener, WAITING_TRANSACTIONS, false).await?;
    load(&mut listener, BUSY_TRANSACTIONS, true).await?;

    let large = "ä€😀".repeat(888) + &"x".repeat(7); // 7,999 bytes
    other
        .query("SELECT pg_notify('events', $1)", &[&large])
        .await?;
    listener.expect(&large).await?;

    listener
        .client
        .batch_execute("NOTIFY events, 'own'")
        .await?;
    if listener.expect("own").await? != listener.pid {
        return Err("the notification of its own has another sender".into());
    }

    let transaction = other.transaction().await?;
    transaction
        .batch_execute("NOTIFY events, 'rolled back'")
        .await?;
    transaction.rollback().await?;
    other.batch_execute("NOTIFY events, 'committed'").await?;
    listener.expect("committed").await?;

    listener.client.batch_execute("UNLISTEN events").await?;
    other.batch_execute("NOTIFY events, 'unheard'").await?;
    listener.client.batch_execute("LISTEN events").await?;
    other.batch_execute("NOTIFY events, 'heard again'").await?;
    listener.expect("heard again").await?;

    other
        .query("SELECT pg_terminate_backend($1)", &[&listener.pid])
        .await?;
    if let Some(notification) = listener.next().await? {
        return Err(format!(
            "heard {:?} instead of the end of the connection",
            notification.payload()
        )
        .into());
    }
    other.batch_execute("NOTIFY events, 'missed'").await?;
    listener.reconnect().await?;
    other
        .batch_execute("NOTIFY events, 'after reconnecting'")
        .await?;
    listener.expect("after reconnecting").await?;

    let steps = r#"["waiting", "busy", "large", "own", "rollback", "unlisten", "reconnect"]"#;
    let (version, heard) = (version(), listener.heard);
    println!(
        r#"{{"driver": "tokio-postgres", "version": "{version}", "heard": {heard}, "steps": {steps}}}"#
    );
    Ok(())
}

#[tokio::main]
async fn main() {
    if let Err(error) = scenario().await {
        eprintln!("tokio-postgres: {error}");
        std::process::exit(1);
    }
}
