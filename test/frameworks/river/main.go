// The scenario of ../README.md with River: two clients that poll once an hour.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	woken              = 20 // one after the other, each when nothing else is to be done
	writers            = 4
	transactions       = 25 // of each writer
	rowsPerTransaction = 10
	jobs               = writers * transactions * rowsPerTransaction
	handovers          = 4
	handoverLimit      = 2500 * time.Millisecond // a client that is not told tries every 5 to 6 s
	cooldown           = 10 * time.Millisecond   // a client notifies once in that time, at most
	pause              = 250 * time.Millisecond
	others             = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`
)

var (
	background = context.Background()
	deadline   time.Duration
	pool       *pgxpool.Pool
	clients    [2]*river.Client[pgx.Tx]
	done       = tally{times: map[int]int{}}
	steps      []string
)

func fail(format string, arguments ...any) {
	step := "start"
	if len(steps) > 0 {
		step = steps[len(steps)-1]
	}
	fmt.Fprintf(os.Stderr, "river: "+step+": "+format+"\n", arguments...)
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func begin(step string) {
	steps = append(steps, step)
}

// until waits for a condition that other goroutines or the server make true.
func until(condition func() bool, what string) {
	for end := time.Now().Add(deadline); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			fail("not within %v: %s", deadline, what)
		}
	}
}

// tally counts how often each job was done.
type tally struct {
	sync.Mutex
	times           map[int]int
	asleep, aborted bool
}

func (t *tally) number(number int) int {
	t.Lock()
	defer t.Unlock()
	return t.times[number]
}

func (t *tally) total() int {
	t.Lock()
	defer t.Unlock()
	return len(t.times)
}

type numberArgs struct {
	Number int `json:"number"`
}

func (numberArgs) Kind() string { return "number" }

// numberWorker does a job at once.
type numberWorker struct {
	river.WorkerDefaults[numberArgs]
}

func (*numberWorker) Work(_ context.Context, job *river.Job[numberArgs]) error {
	done.Lock()
	defer done.Unlock()
	done.times[job.Args.Number]++
	return nil
}

type sleepArgs struct{}

func (sleepArgs) Kind() string { return "sleep" }

// sleepWorker ends only if its job is cancelled.
type sleepWorker struct {
	river.WorkerDefaults[sleepArgs]
}

func (*sleepWorker) Work(ctx context.Context, _ *river.Job[sleepArgs]) error {
	done.Lock()
	done.asleep = true
	done.Unlock()
	<-ctx.Done()
	done.Lock()
	done.aborted = true
	done.Unlock()
	return ctx.Err()
}

func (*sleepWorker) Timeout(*river.Job[sleepArgs]) time.Duration { return time.Hour }

// start starts the client with this number, or starts it again.
func start(number int) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &numberWorker{})
	river.AddWorker(workers, &sleepWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID:                fmt.Sprintf("client %d", number),
		FetchCooldown:     cooldown,
		FetchPollInterval: time.Hour,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 50}},
		Workers:           workers,
	})
	must(err)
	must(client.Start(background))
	clients[number] = client
}

// enqueue inserts jobs in one transaction, which commits or not.
func enqueue(commit bool, numbers ...int) error {
	transaction, err := pool.Begin(background)
	if err != nil {
		return err
	}
	defer transaction.Rollback(background)
	params := make([]river.InsertManyParams, len(numbers))
	for i, number := range numbers {
		params[i].Args = numberArgs{number}
	}
	if _, err = clients[0].InsertManyTx(background, transaction, params); err != nil || !commit {
		return err
	}
	return transaction.Commit(background)
}

func untilDone(number int) {
	until(func() bool { return done.number(number) > 0 }, fmt.Sprintf("job %d is done", number))
}

// wake inserts one job at a time when a client notifies again, and waits for it.
func wake(number int) {
	time.Sleep(2 * cooldown)
	must(enqueue(true, number))
	untilDone(number)
}

// burst is several writers at once; gives jobs per second.
func burst() float64 {
	began := time.Now()
	var running sync.WaitGroup
	for writer := 1; writer <= writers; writer++ {
		running.Go(func() {
			for i := range transactions {
				var numbers [rowsPerTransaction]int
				for row := range numbers {
					numbers[row] = 1000*writer + i*rowsPerTransaction + row
				}
				must(enqueue(true, numbers[:]...))
			}
		})
	}
	running.Wait()
	wake(9999) // the last ones of the burst may have come without a notification
	until(func() bool { return done.total() == woken+jobs+1 }, "all jobs are done")
	return jobs / time.Since(began).Seconds()
}

func cancel() {
	time.Sleep(2 * cooldown)
	inserted, err := clients[0].Insert(background, sleepArgs{}, nil)
	must(err)
	until(func() bool { done.Lock(); defer done.Unlock(); return done.asleep }, "the job that sleeps has begun")
	_, err = clients[0].JobCancel(background, inserted.Job.ID)
	must(err)
	until(func() bool { done.Lock(); defer done.Unlock(); return done.aborted }, "the job that sleeps is cancelled")
}

func leader() int {
	var id string
	if pool.QueryRow(background, "SELECT leader_id FROM river_leader").Scan(&id) != nil {
		return -1
	}
	number, err := strconv.Atoi(strings.TrimPrefix(id, "client "))
	must(err)
	return number
}

// handOver stops the leader, again and again; the other one must be told.
func handOver() {
	until(func() bool { return leader() >= 0 }, "a leader is elected")
	for range handovers {
		time.Sleep(pause)
		former := leader()
		must(clients[former].Stop(background))
		began := time.Now()
		until(func() bool { return leader() == 1-former }, "the other client is the leader")
		if took := time.Since(began); took > handoverLimit {
			fail("the other client became the leader only after %v", took)
		}
		start(former)
	}
}

// reconnect breaks all connections. A job is done again, and from then on each wakes the workers.
func reconnect() {
	until(func() bool {
		var left int
		must(pool.QueryRow(background, "SELECT count(*) FROM river_job WHERE state IN ('available', 'running')").Scan(&left))
		return left == 0
	}, "no job is left")
	connection, err := pgx.Connect(background, os.Getenv("DATABASE_URL"))
	must(err)
	_, err = connection.Exec(background, others)
	must(err)
	must(connection.Close(background))
	first, end := 20001, time.Now().Add(deadline)
	for number := first; ; number++ {
		if time.Now().After(end) {
			fail("no job is done any more")
		}
		if err := enqueue(true, number); err != nil {
			fmt.Fprintf(os.Stderr, "river: not enqueued: %v\n", err)
			first = number + 1
		}
		time.Sleep(pause)
		if done.number(first) > 0 {
			break
		}
	}
	wake(30001)
	wake(30002)
}

// version is the one that go.mod pins.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/riverqueue/river" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func main() {
	seconds, err := strconv.ParseFloat(os.Getenv("DEADLINE_S"), 64)
	must(err)
	deadline = time.Duration(seconds * float64(time.Second))
	pool, err = pgxpool.New(background, os.Getenv("DATABASE_URL")+"&pool_max_conns=20")
	must(err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	must(err)
	_, err = migrator.Migrate(background, rivermigrate.DirectionUp, nil)
	must(err)
	start(0)
	start(1)
	time.Sleep(time.Second) // they do not tell when they listen

	begin("woken")
	for number := range woken {
		wake(number)
	}
	begin("burst")
	perSecond := burst()
	begin("rollback")
	time.Sleep(2 * cooldown)
	must(enqueue(false, 10001))
	wake(10002)
	begin("cancel")
	cancel()
	begin("leader")
	handOver()
	begin("reconnect")
	reconnect()

	for number, times := range done.times {
		if times != 1 || number == 10001 {
			fail("job %d was done %d times", number, times)
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"framework": "river", "version": version(), "steps": steps, "per_second": int(perSecond),
	}))
}
