import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.Driver;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** The scenario of ../README.md with pgjdbc: getNotifications(), with a timeout and without. */
public final class Main {
	static final int WRITERS = 4;
	static final int ROWS_PER_TRANSACTION = 10;
	static final int WAITING_TRANSACTIONS = 400; // of each writer, while the listener only waits
	static final int BUSY_TRANSACTIONS = 100; // of each writer, while the listener runs statements
	static final int DEADLINE_MS = 60_000;
	static final int TURN_MS = 500; // one wait with a timeout
	static final String LARGE = "ä€😀".repeat(888) + "x".repeat(7); // 7,999 bytes

	/** The driver heard something else than it should. */
	static final class Failure extends Exception {
		Failure(String message) {
			super(message);
		}
	}

	static String variable(String name) {
		return System.getenv().getOrDefault(name, "");
	}

	static Connection connect() throws SQLException {
		Properties properties = new Properties();
		properties.setProperty("user", variable("PGUSER"));
		properties.setProperty("password", variable("PGPASSWORD"));
		return DriverManager.getConnection("jdbc:postgresql://" + variable("PGHOST") + ":" + variable("PGPORT")
				+ "/" + variable("PGDATABASE"), properties);
	}

	static void run(Connection connection, String sql) throws SQLException {
		try (Statement statement = connection.createStatement()) {
			statement.execute(sql);
		}
	}

	static String shortened(String payload) {
		return '"' + payload.substring(0, Math.min(40, payload.length())) + '"';
	}

	/** A connection that listens, and what it has heard. */
	static final class Listener {
		Connection connection;
		int pid;
		int heard;
		final int[] lastSeq = new int[WRITERS + 1];
		final ArrayDeque<PGNotification> arrived = new ArrayDeque<>();

		/** Connects, or connects again, and listens. */
		void connect() throws SQLException {
			connection = Main.connect();
			try (Statement statement = connection.createStatement();
					ResultSet result = statement.executeQuery("SELECT pg_backend_pid()")) {
				result.next();
				pid = result.getInt(1);
			}
			run(connection, "LISTEN events");
		}

		/** What came with the results of statements, or has come since: without waiting. */
		void look() throws SQLException {
			arrived.addAll(Arrays.asList(connection.unwrap(PGConnection.class).getNotifications()));
		}

		/** Waits for notifications. */
		void await() throws SQLException {
			arrived.addAll(Arrays.asList(connection.unwrap(PGConnection.class).getNotifications(TURN_MS)));
		}

		/** The next notification, without running a statement; by waiting, or by looking again and again. */
		PGNotification next(boolean waiting) throws SQLException, Failure, InterruptedException {
			long end = System.nanoTime() + DEADLINE_MS * 1_000_000L;
			while (arrived.isEmpty()) {
				if (System.nanoTime() > end) {
					throw new Failure("nothing came within " + DEADLINE_MS + " ms; heard " + heard + " so far");
				}
				if (waiting) {
					await();
				} else {
					look();
					Thread.sleep(1);
				}
			}
			return arrived.poll();
		}

		/** The next notification must have this payload; gives its sender. */
		int expect(String payload, boolean waiting) throws SQLException, Failure, InterruptedException {
			PGNotification notification = next(waiting);
			if (!notification.getName().equals("events") || !notification.getParameter().equals(payload)) {
				throw new Failure("heard " + shortened(notification.getParameter()) + " on "
						+ notification.getName() + " instead of " + shortened(payload));
			}
			heard++;
			return notification.getPID();
		}

		/** Each writer's rows must come in order, none lost and none doubled. */
		void takeRow(PGNotification notification) throws Failure {
			String payload = notification.getParameter();
			if (!payload.matches("[1-" + WRITERS + "] [0-9]+")) {
				throw new Failure("heard " + shortened(payload) + " during the load");
			}
			int writer = payload.charAt(0) - '0';
			int seq = Integer.parseInt(payload.substring(2));
			if (seq != lastSeq[writer] + 1) {
				throw new Failure("writer " + writer + ": heard row " + seq + " after row " + lastSeq[writer]);
			}
			lastSeq[writer] = seq;
			heard++;
		}

		/** Runs statements, and takes what came with their results. */
		void runATransaction() throws SQLException, Failure {
			connection.setAutoCommit(false);
			run(connection, "SELECT count(*) FROM pg_class");
			connection.commit();
			connection.setAutoCommit(true);
			look();
			while (!arrived.isEmpty()) {
				takeRow(arrived.poll());
			}
		}
	}

	/** One writer's part of a load, from row `seq` on. */
	static Void writeRows(int writer, int seq, int transactions) throws SQLException {
		try (Connection connection = connect()) {
			connection.setAutoCommit(false);
			try (PreparedStatement insert = connection.prepareStatement(
					"INSERT INTO event SELECT ?, s FROM generate_series(?::int, ?::int) s")) {
				for (int i = 0; i < transactions; i++) {
					int first = seq + i * ROWS_PER_TRANSACTION;
					insert.setInt(1, writer);
					insert.setInt(2, first);
					insert.setInt(3, first + ROWS_PER_TRANSACTION - 1);
					insert.execute();
					connection.commit();
				}
			}
		}
		return null;
	}

	/** All writers at once, each on a connection of its own, and the listener beside them. */
	static void load(Listener listener, int transactions, boolean busy) throws Exception {
		int wanted = listener.heard + WRITERS * transactions * ROWS_PER_TRANSACTION;
		ExecutorService threads = Executors.newFixedThreadPool(WRITERS);
		List<Future<Void>> writers = new ArrayList<>();
		for (int i = 1; i <= WRITERS; i++) {
			int writer = i;
			int seq = listener.lastSeq[writer] + 1;
			writers.add(threads.submit(() -> writeRows(writer, seq, transactions)));
		}
		while (listener.heard < wanted) {
			if (busy) {
				listener.runATransaction();
			} else {
				listener.takeRow(listener.next(true));
			}
		}
		for (Future<Void> writer : writers) {
			writer.get();
		}
		threads.shutdown();
	}

	static void scenario() throws Exception {
		Listener listener = new Listener();
		listener.connect();
		Connection other = connect();
		load(listener, WAITING_TRANSACTIONS, false);
		load(listener, BUSY_TRANSACTIONS, true);

		try (PreparedStatement notify = other.prepareStatement("SELECT pg_notify('events', ?)")) {
			notify.setString(1, LARGE);
			notify.execute();
		}
		listener.expect(LARGE, true);

		run(listener.connection, "NOTIFY events, 'own'");
		if (listener.expect("own", false) != listener.pid) {
			throw new Failure("the notification of its own has another sender");
		}

		other.setAutoCommit(false);
		run(other, "NOTIFY events, 'rolled back'");
		other.rollback();
		other.setAutoCommit(true);
		run(other, "NOTIFY events, 'committed'");
		listener.expect("committed", false);

		run(listener.connection, "UNLISTEN events");
		run(other, "NOTIFY events, 'unheard'");
		run(listener.connection, "LISTEN events");
		run(other, "NOTIFY events, 'heard again'");
		listener.expect("heard again", true);

		run(other, "SELECT pg_terminate_backend(" + listener.pid + ")");
		try {
			PGNotification notification = listener.next(true);
			throw new Failure("heard " + shortened(notification.getParameter())
					+ " instead of the end of the connection");
		} catch (SQLException expected) {
			listener.connection.close();
		}
		run(other, "NOTIFY events, 'missed'");
		listener.connect();
		run(other, "NOTIFY events, 'after reconnecting'");
		listener.expect("after reconnecting", true);
		listener.connection.close();
		other.close();

		System.out.println("{\"driver\": \"pgjdbc\", \"version\": \""
				+ Driver.class.getPackage().getImplementationVersion() + "\", \"heard\": " + listener.heard
				+ ", \"steps\": [\"waiting\", \"busy\", \"large\", \"own\", \"rollback\", \"unlisten\", "
				+ "\"reconnect\"]}");
	}

	public static void main(String[] arguments) {
		try {
			scenario();
		} catch (Exception problem) {
			System.err.println("pgjdbc: " + problem.getMessage());
			System.exit(1); // the writers' threads may still run
		}
	}
}
