package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"evenkeel/checkpoint"
)

// newest is the newest step that all files say they have, and whether there is one.
func newest(files []*checkpoint.File) (uint64, bool) {
	count := map[uint64]int{}
	for _, f := range files {
		here := map[uint64]bool{}
		for _, s := range f.Slots() {
			if s.Sequence > 0 && s.Fault == "" && !here[s.Step] {
				here[s.Step] = true
				count[s.Step]++
			}
		}
	}
	step, found := uint64(0), false
	for s, n := range count {
		if n == len(files) && (!found || s > step) {
			step, found = s, true
		}
	}
	return step, found
}

// openAll opens the files of a job, which may be writing them.
func openAll(paths []string) ([]*checkpoint.File, func(), error) {
	var files []*checkpoint.File
	done := func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, p := range paths {
		f, err := checkpoint.Open(p, nil, checkpoint.Options{ReadOnly: true})
		if err != nil {
			done()
			return nil, nil, err
		}
		files = append(files, f)
	}
	return files, done, nil
}

// Files are the paths or, for one path at which there is no file but sets of files for each rank, those of the newest complete set.
func Files(paths []string) []string {
	if len(paths) != 1 {
		return paths
	}
	folder, name := filepath.Split(paths[0])
	there, err := os.ReadDir(cmp.Or(folder, "."))
	sets := map[[2]int]int{}
	for _, f := range there {
		var g, rank, ranks int
		if end, ok := strings.CutPrefix(f.Name(), name+".g"); ok {
			if n, _ := fmt.Sscanf(end, "%d.%dof%d", &g, &rank, &ranks); n == 3 && end == fmt.Sprintf("%d.%dof%d", g, rank, ranks) {
				sets[[2]int{g, ranks}]++
			}
		} else if f.Name() == name {
			return paths
		}
	}
	best := [2]int{-1}
	for set, files := range sets {
		if files == set[1] && set[0] > best[0] {
			best = set
		}
	}
	if err != nil || best[0] < 0 {
		return paths
	}
	var out []string
	for rank := range best[1] {
		out = append(out, fmt.Sprintf("%s.g%d.%dof%d", paths[0], best[0], rank, best[1]))
	}
	return out
}

// Upload verifies the newest checkpoint that all Files(paths) of a job have, and uploads it. It gives its step, and false if
// that is there already. The job may go on saving meanwhile.
func (s *Store) Upload(ctx context.Context, paths []string) (step uint64, uploaded bool, err error) {
	paths = Files(paths)
	files, done, err := openAll(paths)
	if err != nil {
		return 0, false, err
	}
	defer done()
	step, found := newest(files)
	if !found {
		return 0, false, fmt.Errorf("%s: no checkpoint that all %d files have: %w", paths[0], len(paths), checkpoint.ErrEmpty)
	}
	there, err := s.Steps(ctx)
	if err != nil {
		return 0, false, err
	}
	if slices.Contains(there, step) {
		return step, false, nil
	}
	l := List{Version: version, Step: step}
	for i, f := range files {
		p, err := s.part(ctx, f, step, i)
		if err != nil {
			return 0, false, err
		}
		l.Files = append(l.Files, p)
	}
	text, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return 0, false, err
	}
	if _, err := parseList(text, step); err != nil {
		return 0, false, err
	}
	_, err = s.client.PutObject(ctx, s.bucket, s.folder(step)+listName, bytes.NewReader(text), int64(len(text)), minio.PutObjectOptions{ContentType: "application/json"})
	return step, err == nil, s.explain("write "+listName, err)
}

// part uploads one file's checkpoint.
func (s *Store) part(ctx context.Context, f *checkpoint.File, step uint64, i int) (Part, error) {
	arrays := f.Arrays()
	for k := range arrays {
		arrays[k].Data = make([]byte, arrays[k].Len())
	}
	state, _, err := f.RestoreStep(arrays, step) // of a reader: it frees nothing
	if err != nil {
		return Part{}, err
	}
	info, sum := f.Info(), sha256.New()
	n := counter(0)
	if err := checkpoint.WriteSafetensors(io.MultiWriter(sum, &n), arrays, state); err != nil {
		return Part{}, fmt.Errorf("%s: %w", f.Path(), err)
	}
	p := Part{Name: filepath.Base(f.Path()), Object: fmt.Sprintf("%d.safetensors", i), Bytes: int64(n), SHA256: hex.EncodeToString(sum.Sum(nil)), ID: info.ID, Rank: info.Rank, Ranks: info.Ranks}
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(checkpoint.WriteSafetensors(w, arrays, state))
	}()
	put, err := s.client.PutObject(ctx, s.bucket, s.folder(step)+p.Object, r, p.Bytes, minio.PutObjectOptions{ContentType: "application/octet-stream", PartSize: 16 << 20})
	r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	<-written
	if err == nil && put.Size != p.Bytes {
		err = fmt.Errorf("%d of %d bytes were taken: %w", put.Size, p.Bytes, ErrCorrupt)
	}
	return p, s.explain(fmt.Sprintf("upload step %d of %s", step, f.Path()), err)
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// Follow uploads what a job saves, until the context is done: the newest checkpoint at most every so often. What goes
// wrong is told and tried again; what was uploaded before stays. keep: this many complete checkpoints are left, 0: all.
func (s *Store) Follow(ctx context.Context, paths []string, every time.Duration, keep int, tell func(step uint64, uploaded bool, err error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		step, uploaded, err := s.Upload(ctx, paths)
		if err == nil && uploaded && keep > 0 {
			err = s.Prune(ctx, keep)
		}
		if ctx.Err() != nil {
			return
		}
		tell(step, uploaded, err)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Prune removes complete checkpoints that are older than so many whose objects have their lengths, each its list first: half of one never counts.
func (s *Store) Prune(ctx context.Context, keep int) error {
	if keep < 1 {
		return fmt.Errorf("keep is %d, must be at least 1: %w", keep, ErrConfig)
	}
	steps, err := s.Steps(ctx)
	if err != nil {
		return err
	}
	for _, step := range steps {
		l, err := s.list(ctx, step)
		if keep > 0 {
			for i := 0; err == nil && i < len(l.Files); i++ {
				var there minio.ObjectInfo
				there, err = s.client.StatObject(ctx, s.bucket, s.folder(step)+l.Files[i].Object, minio.StatObjectOptions{})
				if minio.ToErrorResponse(err).Code == minio.NoSuchKey || err == nil && there.Size != l.Files[i].Bytes {
					err = ErrCorrupt
				}
			}
			if err == nil {
				keep--
			} else if !errors.Is(err, ErrCorrupt) {
				return s.explain(fmt.Sprintf("look at step %d", step), err)
			}
			continue
		}
		if err != nil {
			return err
		}
		objects := []string{listName}
		for _, p := range l.Files {
			objects = append(objects, p.Object)
		}
		for _, o := range objects {
			if err := s.client.RemoveObject(ctx, s.bucket, s.folder(step)+o, minio.RemoveObjectOptions{}); err != nil {
				return s.explain(fmt.Sprintf("remove step %d", step), err)
			}
		}
	}
	return nil
}
