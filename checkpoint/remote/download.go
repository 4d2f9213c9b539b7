package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7"

	"evenkeel/checkpoint"
)

// Download makes the checkpoint files of a step in a folder, the newest that verifies if step is nil. A file that is
// there already is never touched: it is an error. Faults says which newer steps were damaged.
func (s *Store) Download(ctx context.Context, folder string, step *uint64, o checkpoint.Options) (got List, faults []error, err error) {
	steps := []uint64{0}
	if step != nil {
		steps[0] = *step
	} else if steps, err = s.Steps(ctx); err != nil {
		return List{}, nil, err
	}
	for _, n := range steps {
		got, err = s.download(ctx, folder, n, o)
		if err == nil {
			return got, faults, nil
		}
		if step != nil || !errors.Is(err, ErrCorrupt) {
			return List{}, faults, err
		}
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return List{}, faults, fmt.Errorf("no step verifies: %w", errors.Join(faults...))
	}
	return List{}, nil, fmt.Errorf("%s: %w", s.where, ErrNone)
}

func (s *Store) download(ctx context.Context, folder string, step uint64, o checkpoint.Options) (_ List, err error) {
	l, err := s.list(ctx, step)
	if err != nil {
		return List{}, err
	}
	for _, p := range l.Files {
		if _, err := os.Lstat(filepath.Join(folder, p.Name)); err == nil {
			return List{}, fmt.Errorf("%s: %w; choose another folder, or remove it", filepath.Join(folder, p.Name), fs.ErrExist)
		}
	}
	var made []string
	defer func() {
		if err != nil { // all files, or none
			for _, p := range made {
				err = errors.Join(err, os.Remove(p))
			}
		}
	}()
	for _, p := range l.Files {
		arrays, state, err := s.fetch(ctx, step, p)
		if err != nil {
			return List{}, err
		}
		path := filepath.Join(folder, p.Name)
		if err := restored(ctx, path, p, arrays, state, o); err != nil {
			return List{}, err
		}
		made = append(made, path)
	}
	return l, nil
}

// fetch reads one file's checkpoint, and compares it with its checksum.
func (s *Store) fetch(ctx context.Context, step uint64, p Part) ([]checkpoint.Array, checkpoint.State, error) {
	what := fmt.Sprintf("download %s of step %d", p.Object, step)
	fail := func(err error) ([]checkpoint.Array, checkpoint.State, error) {
		return nil, checkpoint.State{}, s.explain(what, err)
	}
	o, err := s.client.GetObject(ctx, s.bucket, s.folder(step)+p.Object, minio.GetObjectOptions{})
	if err != nil {
		return fail(err)
	}
	defer o.Close()
	info, err := o.Stat()
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			err = fmt.Errorf("%w: %w", err, ErrCorrupt)
		}
		return fail(err)
	}
	if info.Size != p.Bytes {
		return fail(fmt.Errorf("%d bytes, %d were uploaded: %w", info.Size, p.Bytes, ErrCorrupt))
	}
	sum := sha256.New()
	arrays, state, err := checkpoint.ReadSafetensors(io.TeeReader(io.LimitReader(o, p.Bytes), sum), p.Bytes)
	if errors.Is(err, checkpoint.ErrFormat) {
		err = fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != p.SHA256 {
		err = fmt.Errorf("checksum differs: %w", ErrCorrupt)
	}
	if err == nil && state.Step != step {
		err = fmt.Errorf("it is of step %d: %w", state.Step, ErrCorrupt)
	}
	if err != nil {
		return fail(err)
	}
	return arrays, state, nil
}

// restored makes one checkpoint file with one checkpoint.
func restored(ctx context.Context, path string, p Part, arrays []checkpoint.Array, state checkpoint.State, o checkpoint.Options) (err error) {
	id, err := hex.DecodeString(p.ID)
	if err != nil {
		return fmt.Errorf("id %q: %w", p.ID, ErrCorrupt)
	}
	o.Rank, o.Ranks, o.ID = p.Rank, p.Ranks, [16]byte(id)
	o.StateBytes = max(o.StateBytes, 64<<10, 4*len(state.Random))
	f, err := checkpoint.Create(path, arrays, o)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	save, err := f.Begin(ctx, state.Step)
	if err != nil {
		return err
	}
	for _, a := range arrays {
		if err := save.Write(a.Name, a.Data); err != nil {
			return err
		}
	}
	if err := save.Commit(state); err != nil {
		return err
	}
	return save.Wait(ctx)
}
