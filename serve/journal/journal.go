// Package journal keeps what happened to jobs: for each a sequence of messages, in a JetStream stream of NATS. The server is one within the
// process, whose files lie in a folder, or one that runs already.
//
//	j, err := journal.Open(ctx, journal.Options{Dir: "/var/lib/evenkeel"})
//	last, err := j.Append(ctx, "job", 0, message)             // the first of its job; 0 follows nothing
//	last, err = j.Append(ctx, "job", last, message)           // errors.Is(err, ErrStale) where another was quicker
//	last, err = j.Read(ctx, "job", 0, func(m []byte) error {...}) // all behind message 0, to the newest
//
// The append decides who drives a job: it holds only behind the message that its writer read or wrote last. A writer that
// was paused while another went on cannot write. What Append has returned lasts: the server within the process flushes each message to the disk
// before it answers (one that runs already does so if its configuration says sync_interval: always).
package journal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"evenkeel/internal/badinput"
	"evenkeel/internal/broker"
)

const (
	stream   = "EVENKEEL_JOBS"
	prefix   = "evenkeel.jobs."
	probe    = prefix + "%ready"       // Check's; no escaped name of a job is that
	patience = 10 * time.Second        // at the start, and with the server within the process
	answer   = 1500 * time.Millisecond // of a server elsewhere: who reports waits for it, 2 s as a rule
	again    = answer / 5              // until a question that has no answer is asked again
	beat     = time.Second             // between two looks whether a server still answers; the second that fails ends its connection
	copies   = 3                       // of what is kept, where the server is one of a cluster

	// Of the server within the process. One that runs already has a limit of its own (max_payload), a million bytes by default.
	maxMessage = 32 << 20
	mostStore  = 1 << 60 // bytes: MaxBytes and the disk are the limits
)

// noResources is what a server answers whose own limit of bytes is reached, or whose disk is full (JSInsufficientResourcesErr).
const noResources jetstream.ErrorCode = 10023

// Errors of Append.
var (
	ErrStale = errors.New("journal: another service has written since")
	ErrFull  = errors.New("journal: its limit of bytes (--max-bytes) is reached; delete jobs that are over")
)

// Options of Open: Dir or URL.
type Options struct {
	Dir   string // of the server within the process; it is made where there is none
	URL   string // of servers that run already, separated by commas
	Creds string // file with the credentials for URL; "": none
	// MaxBytes is how much the journal of all jobs may hold, 0: no limit. It holds for a journal that is made.
	MaxBytes int64
}

// Journal is a connection to a journal. It is safe for concurrent use.
type Journal struct {
	dir    string         // of the server within the process
	server *server.Server // nil: one that runs already, which others may use, too
	lock   *os.File
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream

	statfs  func(dir string, into *unix.Statfs_t) error
	broken  atomic.Bool // a write of the server within the process has failed
	mending sync.Mutex

	unanswered atomic.Int32 // questions, one after another
	turned     atomic.Int64 // when another server was turned to, in nanoseconds
}

// Open opens a journal, and makes it where there is none.
func Open(ctx context.Context, o Options) (*Journal, error) {
	if (o.Dir == "") == (o.URL == "") {
		return nil, badinput.New("journal: give a folder or an address")
	}
	j := &Journal{statfs: unix.Statfs}
	if err := j.open(ctx, o); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

func (j *Journal) open(ctx context.Context, o Options) error {
	options := []nats.Option{
		nats.Name("evenkeel"), nats.Timeout(answer), nats.MaxReconnects(-1), nats.ReconnectWait(answer / 10), nats.PingInterval(beat), nats.MaxPingsOutstanding(1),
		nats.ReconnectBufSize(-1), // what cannot be sent fails at once, and is not sent later
	}
	if o.Creds != "" {
		options = append(options, nats.UserCredentials(o.Creds))
	}
	if o.Dir != "" {
		if err := j.serve(o.Dir); err != nil {
			return err
		}
		options = append(options, nats.InProcessServer(j.server))
	}
	var err error
	if j.conn, err = nats.Connect(o.URL, options...); err != nil {
		if parse := (*url.Error)(nil); errors.As(err, &parse) {
			err = parse.Err // the rest holds the address
		}
		return badinput.Errorf("journal: NATS at %s: %w", redacted(o.URL), err)
	}
	if j.js, err = jetstream.New(j.conn); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for { // a cluster that has just come up, or lost a server, does not answer at once
		if err = j.find(ctx, o); err == nil && o.Dir != "" {
			return flushFolders(o.Dir)
		}
		if err == nil || badinput.Is(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(answer / 10):
		}
	}
}

// find finds the stream, or makes it.
func (j *Journal) find(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, 2*answer)
	defer cancel()
	var err error
	if j.stream, err = j.js.Stream(ctx, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		config := jetstream.StreamConfig{
			Name: stream, Description: "Evenkeel: what happened to jobs", Subjects: []string{prefix + ">"}, Storage: jetstream.FileStorage,
			Discard: jetstream.DiscardNew, MaxBytes: o.MaxBytes, Replicas: 1,
		}
		if config.MaxBytes == 0 {
			config.MaxBytes = -1
		}
		if o.URL != "" && j.conn.ConnectedClusterName() != "" {
			config.Replicas = copies
		}
		j.stream, err = j.js.CreateStream(ctx, config)
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return badinput.Errorf("journal: NATS at %s runs without JetStream; start it with -js", redacted(o.URL))
	case err != nil:
		return fmt.Errorf("journal: %w", err)
	}
	if why := unfit(&j.stream.CachedInfo().Config); why != "" {
		return badinput.Errorf("journal: NATS at %s: the stream %s %s; it is another program's, or was edited: put it right, or use another account", redacted(o.URL), stream, why)
	}
	return nil
}

// unfit says why an existing stream cannot be the journal: it would not take what happens to jobs, or would not keep it.
func unfit(c *jetstream.StreamConfig) string {
	switch {
	case !slices.Equal(c.Subjects, []string{prefix + ">"}):
		return fmt.Sprintf("has the subjects %q", c.Subjects)
	case c.MaxAge != 0 || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 || c.Retention != jetstream.LimitsPolicy:
		return "forgets messages (max_age, max_msgs, max_msgs_per_subject or retention)"
	case c.Discard != jetstream.DiscardNew:
		return "discards old messages when it is full"
	case c.Storage != jetstream.FileStorage:
		return "is in memory alone"
	}
	return ""
}

// redacted are addresses without the passwords that they may hold.
func redacted(urls string) string {
	all := strings.Split(urls, ",")
	for i, one := range all {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.Host != "" {
			if u.User != nil {
				u.User = url.User("xxxxx") // a name alone may be a token
			}
			all[i] = u.String()
		} else if at := strings.LastIndexByte(one, '@'); at >= 0 {
			all[i] = "xxxxx" + one[at:]
		}
	}
	return strings.Join(all, ",")
}

// serve starts the server within the process. Two of them would not know of each other, so the folder is locked.
func (j *Journal) serve(dir string) error {
	j.dir = dir
	err := makeFolder(dir)
	if err != nil {
		return badinput.Errorf("journal: %w", err)
	}
	if j.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return badinput.Errorf("journal: %w", err)
	}
	if err := unix.Flock(int(j.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return badinput.Errorf("journal: %s is in use by another service", dir)
	}
	if err := tryWrite(dir); err != nil {
		return fmt.Errorf("journal: %s: %w; make room", dir, err)
	}
	j.server, err = broker.Start(&server.Options{
		DontListen: true, JetStream: true, JetStreamMaxStore: mostStore, JetStreamMaxMemory: mostStore, StoreDir: dir, SyncAlways: true, MaxPayload: maxMessage, ServerName: "evenkeel",
	}, patience)
	if err != nil {
		return fmt.Errorf("journal: %s: %w", dir, err)
	}
	return nil
}

// subject is a job's. Whatever a name holds, it is one token: dots part tokens, and * and > stand for any.
func subject(job string) string {
	return prefix + strings.ReplaceAll(url.PathEscape(job), ".", "%2E")
}

// Jobs are the names of all jobs that have messages, sorted.
func (j *Journal) Jobs(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, j.answer())
	defer cancel()
	info, err := j.stream.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var jobs []string
	for s := range info.State.Subjects {
		if s == probe {
			continue
		}
		job, err := url.PathUnescape(strings.TrimPrefix(s, prefix))
		if err != nil {
			return nil, fmt.Errorf("journal: subject %s: %w", s, err)
		}
		jobs = append(jobs, job)
	}
	slices.Sort(jobs)
	return jobs, nil
}

// Last is the number of a job's newest message, 0 if there is none.
func (j *Journal) Last(ctx context.Context, job string) (uint64, error) {
	m, err := j.get(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return j.stream.GetLastMsgForSubject(ctx, subject(job))
	})
	if m == nil || err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

// Append appends a message that follows the message of number last, 0: that it is the first, and returns its number. When it returns
// the message is kept. After an error other than ErrStale it may be kept all the same: Read says.
func (j *Journal) Append(ctx context.Context, job string, last uint64, message []byte) (uint64, error) {
	ack, err := j.publish(ctx, subject(job), message, jetstream.WithExpectLastSequencePerSubject(last))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (j *Journal) publish(ctx context.Context, subject string, message []byte, options ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if err := j.mend(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.answer())
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !j.Shared() {
		done := make(chan struct{})
		defer close(done)
		go j.watch(done, end)
	}
	ack, err := j.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: message}, options...)
	if err == nil {
		j.heard(true)
		return ack, nil
	}
	if disk := (*DiskError)(nil); errors.As(context.Cause(ctx), &disk) {
		return nil, disk
	}
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) {
		switch {
		case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence, api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return nil, ErrStale
		case strings.Contains(api.Description, "maximum bytes"), api.ErrorCode == noResources:
			return nil, ErrFull
		}
	}
	j.heard(false)
	return nil, fmt.Errorf("journal: %w", err)
}

// answer is how long a question may take. The server within the process answers as soon as the disk lets it: if the disk stalls for seconds there is nobody else to
// ask, and giving up would mean to read the job again.
func (j *Journal) answer() time.Duration {
	if j.server != nil {
		return patience
	}
	return answer
}

// Shared says whether other services may write, too.
func (j *Journal) Shared() bool { return j.server == nil }

// Room is ErrFull if the limit of bytes leaves no room for further jobs, and a *DiskError if the disk of the server within the process leaves none.
func (j *Journal) Room(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.answer())
	defer cancel()
	info, err := j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	most, used := info.Config.MaxBytes, int64(info.State.Bytes) //nolint:gosec // below its limit
	if most > 0 && most-used < most/freeShare {
		return ErrFull
	}
	return j.spare(1)
}

// Cut removes a job's messages before the one of a number.
func (j *Journal) Cut(ctx context.Context, job string, before uint64) error {
	return j.purge(ctx, jetstream.WithPurgeSubject(subject(job)), jetstream.WithPurgeSequence(before))
}

// Remove removes all messages of a job.
func (j *Journal) Remove(ctx context.Context, job string) error {
	return j.purge(ctx, jetstream.WithPurgeSubject(subject(job)))
}

func (j *Journal) purge(ctx context.Context, which ...jetstream.StreamPurgeOpt) error {
	if err := j.mend(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, j.answer())
	defer cancel()
	if err := j.stream.Purge(ctx, which...); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Check says whether the journal can be written: it writes a message that is of no job.
func (j *Journal) Check(ctx context.Context) error {
	if err := j.Writable(); err != nil {
		return err
	}
	if _, err := j.publish(ctx, probe, []byte("{}")); err != nil {
		return err
	}
	return j.purge(ctx, jetstream.WithPurgeSubject(probe), jetstream.WithPurgeKeep(1))
}

// Close ends the connection, and the server within the process.
func (j *Journal) Close() {
	if j.conn != nil {
		j.conn.Close()
	}
	if j.server != nil {
		broker.Stop(j.server)
	}
	if j.lock != nil {
		_ = j.lock.Close() // and so unlocks
	}
}
