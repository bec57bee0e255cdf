package herald

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	connectTimeoutMin = 2 * time.Second
	connectTimeoutMax = 10 * time.Second
	byeTimeout        = 200 * time.Millisecond
	keepAliveProbes   = 3
	absences          = 4 // heartbeats after which the server ends the session: three keepalives after the first interval
	applicationName   = "application_name"
	roleMax           = 63 // bytes of an application_name
)

// link is a connection, listening or for work.
type link struct {
	*pgx.Conn
	wire   *wire
	server string // host:port
}

// parseConnections returns the configurations of the two connections.
func parseConnections(c Config) (listening, work *pgx.ConnConfig, err error) {
	if listening, err = parseConnection(c, c.Connection); err != nil {
		return nil, nil, err
	}
	text := c.WorkConnection
	if text == "" {
		text = c.Connection
	}
	if work, err = parseConnection(c, text); err != nil {
		return nil, nil, err
	}
	chosen := work.ValidateConnect
	if c.WorkConnection == "" {
		chosen = nil // target_session_attrs is meant for the listening connection
	}
	work.ValidateConnect = func(ctx context.Context, connection *pgconn.PgConn) error {
		if chosen != nil {
			if err := chosen(ctx, connection); err != nil {
				return err
			}
		}
		return pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, connection)
	}
	return listening, work, nil
}

func parseConnection(c Config, text string) (*pgx.ConnConfig, error) {
	parsed, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfiguration, err)
	}
	if parsed.ConnectTimeout == 0 {
		parsed.ConnectTimeout = min(max(c.Heartbeat, connectTimeoutMin), connectTimeoutMax)
	}
	probe := max(c.Heartbeat, time.Second)
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: probe, Interval: probe, Count: keepAliveProbes}}
	parsed.DialFunc = dialer.DialContext
	if parsed.RuntimeParams[applicationName] == "" {
		name := strings.ToValidUTF8(fmt.Sprintf("pg_herald %s", orDefault(c.Name, "shared")), "?")
		parsed.RuntimeParams[applicationName] = strings.ToValidUTF8(name[:min(len(name), roleMax)], "")
	}
	return parsed, nil
}

// connect makes a connection. The error says why it cannot be made.
func (c *Consumer) connect(ctx context.Context, base *pgx.ConnConfig, notified pgconn.NotificationHandler) (*link, error) {
	config := base.Copy()
	config.OnNotification = notified
	if c.config.BeforeConnect != nil {
		if err := c.config.BeforeConnect(ctx, config); err != nil {
			return nil, fmt.Errorf("%w: BeforeConnect: %w", ErrUnreachable, err)
		}
	}
	names := map[string]string{} // of the addresses
	lookup, after := config.LookupFunc, config.AfterNetConnect
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		addresses, err := lookup(ctx, host)
		for _, address := range addresses {
			names[address] = host
		}
		return addresses, err
	}
	config.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, connection net.Conn) (net.Conn, error) {
		if after != nil {
			var err error
			if connection, err = after(ctx, config, connection); err != nil {
				return connection, err
			}
		}
		return &wire{Conn: connection}, nil
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, connectError(err)
	}
	made := &link{Conn: connection, wire: connection.PgConn().Conn().(*wire)}
	made.server = serverName(made.wire.RemoteAddr(), names)
	return made, nil
}

func serverName(address net.Addr, names map[string]string) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String() // a unix socket
	}
	return net.JoinHostPort(orDefault(names[host], host), port)
}

// end ends the connection. The server is informed, but not waited for.
func (l *link) end() {
	l.wire.bid(byeTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	_ = l.Close(ctx)
}

// session identifies a session of the server, also after that has restarted.
type session struct {
	pid     uint32
	started time.Time
}

// noticeAbsence has the server end the session, and free its lock, soon after the client or the network has gone, also in a long
// statement. What an administrator or the user has set remains.
const noticeAbsence = `SELECT set_config(name, value, false)
	FROM (VALUES ('tcp_keepalives_idle', $1), ('tcp_keepalives_interval', $1), ('tcp_keepalives_count', '3'),
		('tcp_user_timeout', $2), ('client_connection_check_interval', $3)) AS wanted (name, value)
	JOIN pg_settings USING (name) WHERE source = 'default'`

// prepareWork has the server watch the work connection, and returns its session.
func (c *Consumer) prepareWork(ctx context.Context, work *link) (session, error) {
	seconds := int(math.Ceil(c.config.Heartbeat.Seconds()))
	_, err := work.Exec(ctx, noticeAbsence, fmt.Sprint(seconds), fmt.Sprint(1000*absences*seconds), fmt.Sprint(1000*seconds))
	if err != nil && (work.IsClosed() || sqlstate(err) == "") {
		return session{}, err
	} // another error: the server's system cannot do that
	var own session
	err = work.QueryRow(ctx, "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()").Scan(
		&own.pid, &own.started)
	return own, err
}

// inspect returns whether the server of a listening connection has no pg_herald.
func (c *Consumer) inspect(ctx context.Context, listening *link) (stock bool, err error) {
	var loaded, created bool
	// Not current_setting(): without the module, a line that is left in postgresql.conf is a setting, too.
	err = listening.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'herald.enabled'),
		EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_herald')`).Scan(&loaded, &created)
	switch {
	case err != nil:
		return false, lost(err)
	case !loaded && c.config.Require:
		return true, fmt.Errorf("%w: %s", ErrStockServer, listening.server)
	case loaded && !created:
		return false, fmt.Errorf("%w: CREATE EXTENSION pg_herald", ErrExtensionMissing)
	}
	return !loaded, nil
}

// isTimeout returns whether an error is the end of a time that was set for a connection.
func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout() || pgconn.Timeout(err)
}
