import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Debezium's engine with the configuration that docs/logged-channels.md shows: prints each record of its topic. */
public final class Engine {
	static final Pattern RECIPE = Pattern.compile("^### Debezium$.*?^```json$(.*?)^```$", Pattern.MULTILINE | Pattern.DOTALL);
	static final String TOPIC = "shop.message";

	/** The page's properties, with this server's address, and what would be the configuration of Kafka Connect. */
	static Properties properties(String offsets) throws Exception {
		Map<String, String> environment = System.getenv();
		Matcher page = RECIPE.matcher(Files.readString(Path.of(environment.get("PAGE"))));
		if (!page.find()) {
			throw new IllegalStateException("the page has no recipe");
		}
		Properties properties = new Properties();
		properties.putAll(new ObjectMapper().readValue(page.group(1), new TypeReference<Map<String, String>>() { }));
		properties.putAll(Map.of(
				"database.hostname", environment.get("PGHOST"), "database.port", environment.get("PGPORT"),
				"database.dbname", environment.get("PGDATABASE"), "database.password", environment.get("PGPASSWORD"),
				"database.sslmode", "disable"));
		properties.putAll(Map.of(
				"name", "shop", "value.converter.schemas.enable", "false", "offset.flush.interval.ms", "1000",
				"offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore",
				"offset.storage.file.filename", offsets));
		return properties;
	}

	public static void main(String[] arguments) throws Exception {
		PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
		try (DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
				.using(properties(arguments[0]))
				.using((success, message, error) -> System.err.println("debezium: engine: " + message + ": " + error))
				.notifying(record -> {
					if (record.destination().equals(TOPIC)) {
						output.println(record.value());
					}
				}).build()) {
			engine.run();
		}
	}
}
