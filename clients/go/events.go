package herald

import (
	"context"
	"log/slog"
	"time"
)

// EventName is the kind of an [Event].
type EventName string

// The events, each with the fields of [Event] that it has.
const (
	Waiting      EventName = "waiting"      // another instance is active
	Active       EventName = "active"       // this one is: Epoch
	ReadingState EventName = "state"        // State is about to be called: Reason
	Listening    EventName = "listening"    // Server, Resumed, Stock
	Handled      EventName = "handled"      // a batch is committed: Count, Position
	Failing      EventName = "failing"      // an attempt has failed, and will be repeated: Err, Attempt
	Poisoned     EventName = "poison"       // Poison has decided: Channel, Payload, Err, Decision
	Disconnected EventName = "disconnected" // both connections are closed, the next attempt comes after Pause: Err, Pause
	Superseded   EventName = "superseded"   // another instance has become active
	Stopped      EventName = "stopped"      // the last one: Err, or nil
)

// Event is something that has happened to a consumer.
type Event struct {
	Name EventName
	At   time.Time

	Epoch    int64  // how often a consumer of this name has become active; 0 with a store of the user's own
	Reason   Reason // why something may be missing
	Server   string // host:port of the listening connection
	Resumed  bool   // nothing is missing
	Stock    bool   // the server has no pg_herald
	Count    int    // of notifications, including those that were skipped
	Position string // up to here everything is handled
	Err      error
	Attempt  int // the number of the attempt, from 1
	Pause    time.Duration
	Channel  string
	Payload  string
	Decision Decision
}

// attributes returns the level and the fields of an event's line in the log.
func (e Event) attributes() (slog.Level, []slog.Attr) {
	switch e.Name {
	case Active:
		return slog.LevelInfo, []slog.Attr{slog.Int64("epoch", e.Epoch)}
	case ReadingState:
		return slog.LevelInfo, []slog.Attr{slog.String("reason", string(e.Reason))}
	case Listening:
		return slog.LevelInfo, []slog.Attr{slog.String("server", e.Server), slog.Bool("resumed", e.Resumed),
			slog.Bool("stock", e.Stock)}
	case Handled:
		return slog.LevelDebug, []slog.Attr{slog.Int("count", e.Count), slog.String("position", e.Position)}
	case Failing:
		return slog.LevelWarn, []slog.Attr{slog.Any("error", e.Err), slog.Int("attempt", e.Attempt)}
	case Poisoned:
		return slog.LevelError, []slog.Attr{slog.String("channel", e.Channel), slog.String("payload", e.Payload),
			slog.Any("error", e.Err), slog.String("decision", e.Decision.String())}
	case Disconnected:
		return slog.LevelWarn, []slog.Attr{slog.Any("error", e.Err), slog.Duration("pause", e.Pause)}
	case Superseded:
		return slog.LevelWarn, nil
	case Stopped:
		if e.Err != nil {
			return slog.LevelError, []slog.Attr{slog.Any("error", e.Err)}
		}
	}
	return slog.LevelInfo, nil
}

func (c *Consumer) emit(event Event) {
	event.At = time.Now()
	level, attributes := event.attributes()
	if c.config.Name != "" {
		attributes = append(attributes, slog.String("consumer", c.config.Name))
	}
	c.config.Logger.LogAttrs(context.Background(), level, "herald: "+string(event.Name), attributes...)
	if c.config.OnEvent != nil {
		c.config.OnEvent(event)
	}
}
