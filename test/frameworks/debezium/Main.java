import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * The steps of ../README.md. The payloads are numbers, counted in a row that each transaction updates until it commits: so the
 * next notification must always have the next number.
 */
public final class Main {
	static final int WOKEN = 20;
	static final int WRITERS = 4;
	static final int TRANSACTIONS = 25; // of each writer
	static final int ROWS = 10; // of each transaction
	static final int LARGE_ROWS = 100; // of 7 kB: three parts
	static final int ROLLED_BACK = 5; // so many of a writer's transactions are followed by one that rolls back
	static final long START_MS = 120_000; // for a JVM and the engine
	static final long DEADLINE_MS = Long.parseLong(System.getenv("DEADLINE_S")) * 1000;
	static final String TEXT = " aä\\\"€😀";
	static final String ACTIVE_SLOT = "FROM pg_replication_slots WHERE slot_name = 'debezium' AND active";

	/** What has come is not what should. */
	static final class Failure extends Exception {
		Failure(String message) {
			super(message);
		}
	}

	final List<String> steps = new ArrayList<>();
	final BlockingQueue<JsonNode> arrived = new LinkedBlockingQueue<>();
	final ArrayDeque<String> ready = new ArrayDeque<>();
	final List<String> incomplete = new ArrayList<>(); // of a message whose last part has not come yet
	final Set<String> places = new HashSet<>();
	int parts; // of the incomplete message
	int largestMessage = 1;
	int number;
	boolean mayRepeat;
	String version = "?";
	Path offsets;
	Process engine;
	Thread reader;
	Connection connection;

	static Connection connect() throws SQLException {
		return DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
				+ System.getenv("PGDATABASE") + "?sslmode=disable", System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
	}

	static void run(Connection connection, String... statements) throws SQLException {
		try (Statement statement = connection.createStatement()) {
			for (String sql : statements) {
				statement.execute(sql);
			}
		}
	}

	static String value(Connection connection, String query) throws SQLException {
		try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(query)) {
			return result.next() ? result.getString(1) : null;
		}
	}

	static void until(long limitMs, String what, Callable<Boolean> condition) throws Exception {
		long end = System.nanoTime() + limitMs * 1_000_000;
		while (!condition.call()) {
			if (System.nanoTime() > end) {
				throw new Failure("not within " + limitMs + " ms: " + what);
			}
			Thread.sleep(50);
		}
	}

	/** Sends the next numbers in one transaction, besides notifications of which nothing may come; none if it rolls back. */
	static void send(Connection connection, int rows, String text, boolean commit) throws SQLException {
		connection.setAutoCommit(false);
		run(connection, "INSERT INTO other VALUES (1)", // so that transactions begin in another order than they commit
				"SAVEPOINT s", "SELECT pg_notify('orders', 'rolled back')", "ROLLBACK TO s",
				"SELECT pg_notify('unlogged', 'unlogged')",
				"WITH counted AS (UPDATE numbers SET last = last + " + rows + " RETURNING last)"
						+ " SELECT count(pg_notify('orders', last - g || '" + text + "'))"
						+ " FROM counted, generate_series(" + (rows - 1) + ", 0, -1) g");
		if (commit) {
			connection.commit();
		} else {
			connection.rollback();
		}
		connection.setAutoCommit(true);
	}

	static Void write() throws SQLException {
		try (Connection connection = connect()) {
			for (int i = 0; i < TRANSACTIONS; i++) {
				send(connection, ROWS, TEXT, true);
				if (i % (TRANSACTIONS / ROLLED_BACK) == 0) {
					send(connection, ROWS, TEXT, false);
				}
			}
		}
		return null;
	}

	/** Starts the engine in a process of its own, which can be killed; returns when it reads from its slot. */
	void startEngine() throws Exception {
		engine = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Dfile.encoding=UTF-8",
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", System.getProperty("java.class.path"), "Engine",
				offsets.toString()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
		Process started = engine;
		reader = new Thread(() -> read(started));
		reader.setDaemon(true);
		reader.start();
		until(START_MS, "the engine reads from its slot", () -> {
			if (!started.isAlive()) {
				throw new Failure("the engine has ended");
			}
			return value(connection, "SELECT active " + ACTIVE_SLOT) != null;
		});
	}

	void read(Process process) {
		ObjectMapper mapper = new ObjectMapper();
		try (BufferedReader output = new BufferedReader(
				new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
			for (String line; (line = output.readLine()) != null;) {
				arrived.add(mapper.readTree(line));
			}
		} catch (JsonProcessingException cut) {
			System.err.println("debezium: the last line of an engine that was killed: " + cut.getOriginalMessage());
		} catch (IOException end) {
			System.err.println("debezium: " + end.getMessage());
		}
	}

	void killEngine() throws Exception {
		engine.destroyForcibly().waitFor();
		reader.join();
		until(START_MS, "the slot is free", () -> value(connection, "SELECT active " + ACTIVE_SLOT) == null);
	}

	/** Takes a record, which is one part of a message. */
	void take(JsonNode record) throws Failure {
		JsonNode part = record.get("after");
		version = record.get("source").get("version").asText();
		if (!part.get("kind").asText().equals("notifications")) {
			return;
		}
		int count = part.get("part").asInt();
		if (count == 1) {
			incomplete.clear();
		} else if (count != parts + 1) {
			checkRepeat(part);
			return;
		}
		parts = count;
		for (JsonNode notification : part.get("notifications")) {
			if (!notification.get("channel").asText().equals("orders")) {
				throw new Failure("a notification on channel " + notification.get("channel"));
			}
			incomplete.add(notification.get("payload").asText());
		}
		if (part.get("last").asBoolean()) {
			if (places.add(part.get("run").asText() + part.get("place").asText())) {
				ready.addAll(incomplete);
				largestMessage = Math.max(largestMessage, parts);
			} else {
				checkRepeat(part);
			}
			parts = 0;
		}
	}

	void checkRepeat(JsonNode part) throws Failure {
		if (!mayRepeat) {
			throw new Failure("came again: part " + part.get("part") + " of the message at " + part.get("place"));
		}
	}

	/** The next records must have so many numbers. */
	void expect(int count) throws Exception {
		for (int wanted = number + count; number < wanted;) {
			while (ready.isEmpty()) {
				JsonNode record = arrived.poll(DEADLINE_MS, TimeUnit.MILLISECONDS);
				if (record == null) {
					throw new Failure("nothing came within " + DEADLINE_MS + " ms after number " + number);
				}
				take(record);
			}
			String payload = ready.remove();
			number++;
			if (!payload.split(" ")[0].equals(Integer.toString(number)) || !payload.matches("\\d+( x{7000}|\\Q" + TEXT + "\\E)")) {
				throw new Failure("instead of number " + number + " came " + payload.substring(0, Math.min(40, payload.length())));
			}
		}
	}

	/** All writers at once; `disturb` is called so many times while they write. */
	void burst(int disturbances, Callable<?> disturb) throws Exception {
		ExecutorService threads = Executors.newFixedThreadPool(WRITERS);
		List<Future<Void>> writers = new ArrayList<>();
		for (int i = 0; i < WRITERS; i++) {
			writers.add(threads.submit(Main::write));
		}
		int share = WRITERS * TRANSACTIONS * ROWS / (disturbances + 1);
		for (int i = 0; i < disturbances; i++) {
			expect(share);
			disturb.call();
		}
		expect(WRITERS * TRANSACTIONS * ROWS - disturbances * share);
		for (Future<Void> writer : writers) {
			writer.get();
		}
		threads.shutdown();
	}

	void scenario() throws Exception {
		offsets = Files.createTempFile("offsets", null);
		Files.delete(offsets); // the engine creates it
		connection = connect();
		run(connection, "DROP ROLE IF EXISTS bridge",
				"CREATE ROLE bridge LOGIN REPLICATION PASSWORD '" + System.getenv("PGPASSWORD") + "'",
				"CREATE PUBLICATION logged", "CREATE TABLE other (i integer)",
				"CREATE TABLE numbers (last integer)", "INSERT INTO numbers VALUES (0)");
		startEngine();

		steps.add("woken");
		for (int i = 0; i < WOKEN; i++) {
			send(connection, 1, TEXT, true);
			expect(1);
		}

		steps.add("burst");
		long began = System.nanoTime();
		burst(0, null);
		double perSecond = WRITERS * TRANSACTIONS * ROWS * 1e9 / (System.nanoTime() - began);

		steps.add("rollback");
		send(connection, 1, TEXT, false);
		send(connection, 1, TEXT, true);
		expect(1);

		steps.add("large");
		send(connection, LARGE_ROWS, " " + "x".repeat(7000), true);
		expect(LARGE_ROWS);
		if (largestMessage < 3) {
			throw new Failure("it came in " + largestMessage + " parts");
		}

		steps.add("idle");
		run(connection, "INSERT INTO other SELECT generate_series(1, 1000)");
		String written = value(connection, "SELECT pg_current_wal_lsn()");
		until(DEADLINE_MS, "it confirms WAL without notifications",
				() -> value(connection, "SELECT active " + ACTIVE_SLOT + " AND confirmed_flush_lsn >= '" + written + "'") != null);

		mayRepeat = true;
		steps.add("reconnect");
		burst(1, () -> {
			if (!"t".equals(value(connection, "SELECT pg_terminate_backend(active_pid) " + ACTIVE_SLOT)))
				throw new Failure("no connection of the engine was ended");
			return null;
		});

		steps.add("killed");
		burst(3, () -> {
			killEngine();
			startEngine();
			return null;
		});
		send(connection, 1, TEXT, true);
		expect(1);
		System.out.println("{\"framework\": \"debezium\", \"version\": \"" + version + "\", \"steps\": [\""
				+ String.join("\", \"", steps) + "\"], \"per_second\": " + Math.round(perSecond) + "}");
	}

	/** Ends what the scenario has left. */
	void close() throws Exception {
		if (engine != null) {
			engine.destroyForcibly().waitFor();
		}
		if (offsets != null) {
			Files.deleteIfExists(offsets);
		}
	}

	public static void main(String[] arguments) throws Exception {
		Main main = new Main();
		int status = 0;
		try {
			main.scenario();
		} catch (Exception problem) {
			String step = main.steps.isEmpty() ? "start" : main.steps.get(main.steps.size() - 1);
			System.err.println("debezium: " + step + ": " + (problem instanceof Failure ? problem.getMessage() : problem));
			status = 1;
		}
		main.close();
		System.exit(status); // the writers' threads may still run
	}
}
