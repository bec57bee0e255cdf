import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** Writes one bill for each order, also when the connection breaks. JDBC_URL says where. */
public final class Consumer {
	/** This is the first start, or something is gone: do what is left to do. */
	static void readState(Connection connection) throws SQLException {
		execute(connection, "INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING");
	}

	/** Do what one notification asks for. */
	static void handle(Connection connection, String payload) throws SQLException {
		execute(connection, "INSERT INTO bill VALUES (?::bigint) ON CONFLICT DO NOTHING", payload);
	}

	static void execute(Connection connection, String sql, String... parameters) throws SQLException {
		try (PreparedStatement statement = connection.prepareStatement(sql)) {
			for (int i = 0; i < parameters.length; i++) {
				statement.setString(i + 1, parameters[i]);
			}
			statement.execute();
		}
	}

	/** Listen until the connection breaks. */
	static void consume() throws SQLException {
		try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
			connection.setAutoCommit(false);
			boolean complete;
			try (Statement statement = connection.createStatement()) {
				statement.execute("LISTEN herald_position");
				ResultSet result = statement.executeQuery(
						"SELECT herald.listen('orders', after => (SELECT position FROM progress FOR UPDATE))");
				result.next();
				complete = result.getBoolean(1);
			}
			connection.commit();
			if (!complete) {
				readState(connection);
				connection.commit();
			}
			List<String> payloads = new ArrayList<>();
			while (true) {
				for (PGNotification notification : connection.unwrap(PGConnection.class).getNotifications(0)) {
					if (!notification.getName().equals("herald_position")) {
						payloads.add(notification.getParameter());
						continue;
					}
					for (String payload : payloads) {
						handle(connection, payload);
					}
					execute(connection, "UPDATE progress SET position = ?", notification.getParameter());
					connection.commit(); // the work and its position: both are stored, or none
					payloads.clear();
				}
			}
		}
	}

	public static void main(String[] arguments) throws InterruptedException {
		while (true) {
			try {
				consume();
			} catch (SQLException problem) {
				System.err.println(problem.getMessage());
			}
			Thread.sleep((long) (1000 * Math.random())); // so that not all consumers come back at once
		}
	}
}
