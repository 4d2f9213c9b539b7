// Command s3 tries uploads and downloads of checkpoints against a real S3 server on this machine:
//
//	GOBIN=/tmp/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
//	go run ./experiments/checkpoint/s3 -server /tmp/bin/versitygw
//
// The server keeps objects as files, so that bytes can be changed under it.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/evenkeel/evenkeel/checkpoint"
	"github.com/evenkeel/evenkeel/checkpoint/remote"
)

func main() {
	server := flag.String("server", "versitygw", "the server's program")
	size := flag.Int("mib", 48, "MiB of each rank's parameters: above 16, uploads take several parts")
	flag.Parse()
	if err := run(*server, *size); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type trial struct {
	ctx              context.Context
	folder, endpoint string
	server           string
	running          *exec.Cmd
	mib              int
}

// start runs the server, and waits until it listens.
func (t *trial) start() error {
	t.running = exec.CommandContext(t.ctx, t.server, "--port", strings.TrimPrefix(t.endpoint, "http://"), "posix", filepath.Join(t.folder, "objects"))
	t.running.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+os.Getenv("AWS_ACCESS_KEY_ID"), "ROOT_SECRET_KEY="+os.Getenv("AWS_SECRET_ACCESS_KEY"))
	if err := t.running.Start(); err != nil {
		return err
	}
	for range 200 {
		c, err := net.Dial("tcp", strings.TrimPrefix(t.endpoint, "http://"))
		if err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("the server does not listen")
}

func (t *trial) stop() {
	_ = t.running.Process.Kill()
	_ = t.running.Wait()
}

func (t *trial) store(place string) (*remote.Store, error) {
	return remote.Open(remote.Config{URL: place, Endpoint: t.endpoint, Stall: 5 * time.Second, Retries: 2})
}

func (t *trial) arrays(rank int, step uint64) []checkpoint.Array {
	w := make([]float32, t.mib<<18)
	for i := range w {
		w[i] = float32(i%1009) + float32(rank) + float32(step)
	}
	return []checkpoint.Array{checkpoint.Of(fmt.Sprintf("w%d", rank), checkpoint.Parameter, w)}
}

// job makes the files of two ranks with one checkpoint.
func (t *trial) job(name string, step uint64) ([]string, error) {
	folder := filepath.Join(t.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	var paths []string
	for rank := range 2 {
		p := filepath.Join(folder, fmt.Sprintf("run.ckpt.g1.%dof2", rank))
		arrays := t.arrays(rank, step)
		f, err := checkpoint.Create(p, arrays, checkpoint.Options{Slots: 2, Rank: rank, Ranks: 2, ID: [16]byte{1}})
		if err != nil {
			return nil, err
		}
		save, err := f.Begin(t.ctx, step)
		if err != nil {
			return nil, err
		}
		err = errors.Join(save.Write(arrays[0].Name, arrays[0].Data), save.Commit(checkpoint.State{Step: step, Random: []byte{byte(rank)}}), save.Wait(t.ctx), f.Close())
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// back downloads, and compares every byte.
func (t *trial) back(s *remote.Store, name string, want uint64) ([]error, error) {
	folder := filepath.Join(t.folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	got, faults, err := s.Download(t.ctx, folder, nil, checkpoint.Options{Slots: 2})
	if err != nil {
		return faults, err
	}
	for rank := range 2 {
		f, err := checkpoint.Open(filepath.Join(folder, got.Files[rank].Name), nil, checkpoint.Options{ReadOnly: true})
		if err != nil {
			return faults, err
		}
		into := f.Arrays()
		into[0].Data = make([]byte, into[0].Len())
		state, _, err := f.RestoreStep(into, want)
		if err := errors.Join(err, f.Close()); err != nil {
			return faults, err
		}
		if !bytes.Equal(into[0].Data, t.arrays(rank, want)[0].Data) || !bytes.Equal(state.Random, []byte{byte(rank)}) {
			return faults, fmt.Errorf("rank %d: other bytes came back", rank)
		}
	}
	return faults, nil
}

func run(server string, mib int) error {
	folder, err := os.MkdirTemp("", "s3")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	t := &trial{ctx: ctx, folder: folder, endpoint: "http://" + l.Addr().String(), server: server, mib: mib}
	l.Close()
	secret := rand.Text()
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "objects"), 0o700); err != nil {
		return err
	}
	if err := t.start(); err != nil {
		return err
	}
	defer func() { t.stop() }()
	client, err := minio.New(strings.TrimPrefix(t.endpoint, "http://"), &minio.Options{Creds: credentials.NewEnvAWS()})
	if err != nil {
		return err
	}
	if err := client.MakeBucket(ctx, "models", minio.MakeBucketOptions{}); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(*trial) error
	}{{"there and back", thereAndBack}, {"bytes changed under the server", changed}, {"refused", refused}, {"the server ends", ends}} {
		begun := time.Now()
		if err := step.do(t); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("%-32s right, %.1f s\n", step.name, time.Since(begun).Seconds())
	}
	return nil
}

func thereAndBack(t *trial) error {
	s, err := t.store("s3://models/run")
	if err != nil {
		return err
	}
	defer s.Close()
	for i, step := range []uint64{10, 20} {
		paths, err := t.job(fmt.Sprint("job", step), step)
		if err != nil {
			return err
		}
		if _, uploaded, err := s.Upload(t.ctx, paths); err != nil || !uploaded {
			return fmt.Errorf("upload %d: %v, %w", i, uploaded, err)
		}
		if faults, err := t.back(s, fmt.Sprint("back", step), step); err != nil || len(faults) > 0 {
			return fmt.Errorf("%v, %w", faults, err)
		}
	}
	if steps, err := s.Steps(t.ctx); err != nil || !slices.Equal(steps, []uint64{20, 10}) {
		return fmt.Errorf("steps %v, %w", steps, err)
	}
	return nil
}

func changed(t *trial) error {
	s, err := t.store("s3://models/run")
	if err != nil {
		return err
	}
	defer s.Close()
	objects, err := filepath.Glob(filepath.Join(t.folder, "objects", "models", "run", "step-*20", "1.safetensors"))
	if err != nil || len(objects) != 1 {
		return fmt.Errorf("objects %v, %w", objects, err)
	}
	f, err := os.OpenFile(objects[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, 1<<20)
	b[0] ^= 1
	_, err2 := f.WriteAt(b, 1<<20)
	if err := errors.Join(err, err2, f.Close()); err != nil {
		return err
	}
	faults, err := t.back(s, "fallback", 10)
	if err != nil || len(faults) != 1 || !errors.Is(faults[0], remote.ErrCorrupt) {
		return fmt.Errorf("faults %v, %w", faults, err)
	}
	fmt.Println("  said:", faults[0])
	return nil
}

func refused(t *trial) error {
	paths := []string{filepath.Join(t.folder, "job10", "run.ckpt.g1.0of2"), filepath.Join(t.folder, "job10", "run.ckpt.g1.1of2")}
	right := os.Getenv("AWS_SECRET_ACCESS_KEY")
	for _, c := range []struct{ place, key, secret string }{{"s3://models/other", "tester", "wrong-secret"}, {"s3://models/other", "nobody", right}, {"s3://nothing/run", "tester", right}} {
		if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", c.key), os.Setenv("AWS_SECRET_ACCESS_KEY", c.secret)); err != nil {
			return err
		}
		s, err := t.store(c.place)
		if err != nil {
			return err
		}
		_, _, err = s.Upload(t.ctx, paths)
		s.Close()
		if err == nil || strings.Contains(err.Error(), right) || strings.Contains(err.Error(), "wrong-secret") {
			return fmt.Errorf("%+v: %w", c.place, err)
		}
		fmt.Println("  said:", err)
	}
	return errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", "tester"), os.Setenv("AWS_SECRET_ACCESS_KEY", right))
}

// ends kills the server within an upload, and starts it again.
func ends(t *trial) error {
	s, err := t.store("s3://models/run")
	if err != nil {
		return err
	}
	defer s.Close()
	paths, err := t.job("job30", 30)
	if err != nil {
		return err
	}
	failed := 0
	for _, after := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		killed := make(chan struct{})
		go func() {
			time.Sleep(after)
			t.stop()
			close(killed)
		}()
		_, uploaded, err := s.Upload(t.ctx, paths)
		<-killed
		if err := t.start(); err != nil {
			return err
		}
		if err != nil {
			failed++
			fmt.Println("  said:", strings.SplitN(err.Error(), "\n", 2)[0])
		}
		steps, err := s.Steps(t.ctx)
		if err != nil || !slices.Contains(steps, 10) || uploaded != slices.Contains(steps, 30) {
			return fmt.Errorf("uploaded %v, then steps %v, %w", uploaded, steps, err)
		}
		if uploaded {
			break
		}
	}
	if failed == 0 {
		return errors.New("no upload was cut")
	}
	if _, _, err := s.Upload(t.ctx, paths); err != nil {
		return err
	}
	_, err = t.back(s, "after", 30)
	return err
}
