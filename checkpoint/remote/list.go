package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
)

const (
	listName   = "complete.json"
	maxList    = 16 << 20
	maxFiles   = 1 << 16
	maxObjects = 1 << 20 // objects looked at in a listing
	version    = 1
)

// List is what makes an uploaded checkpoint count: written last, read first.
type List struct {
	Version int    `json:"version"`
	Step    uint64 `json:"step"`
	Files   []Part `json:"files"`
}

// Part is one file of a checkpoint.
type Part struct {
	Name   string `json:"name"` // of the checkpoint file, without its folder
	Object string `json:"object"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	ID     string `json:"id"` // the same for the files of all ranks
	Rank   int    `json:"rank"`
	Ranks  int    `json:"ranks"`
}

func (s *Store) folder(step uint64) string { return fmt.Sprintf("%sstep-%020d/", s.prefix, step) }

// Steps are the steps of the complete checkpoints, newest first.
func (s *Store) Steps(ctx context.Context) ([]uint64, error) {
	ctx, stop := context.WithCancel(ctx) // a listing that is left early ends
	defer stop()
	var steps []uint64
	seen := 0
	for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + "step-", Recursive: true}) {
		if o.Err != nil {
			return nil, s.explain("list", o.Err)
		}
		if seen++; seen > maxObjects {
			return nil, fmt.Errorf("%s: more than %d objects; use a folder of its own: %w", s.where, maxObjects, ErrConfig)
		}
		folder, name := path.Split(strings.TrimPrefix(o.Key, s.prefix))
		number, ok := strings.CutPrefix(strings.TrimSuffix(folder, "/"), "step-")
		if !ok || name != listName {
			continue
		}
		if step, err := strconv.ParseUint(number, 10, 64); err == nil && s.folder(step) == s.prefix+folder {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b uint64) int { return cmp.Compare(b, a) })
	return steps, nil
}

// list reads and checks the list of one step.
func (s *Store) list(ctx context.Context, step uint64) (List, error) {
	what := fmt.Sprintf("read %s of step %d", listName, step)
	o, err := s.client.GetObject(ctx, s.bucket, s.folder(step)+listName, minio.GetObjectOptions{})
	if err != nil {
		return List{}, s.explain(what, err)
	}
	defer o.Close()
	text, err := io.ReadAll(io.LimitReader(o, maxList+1))
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return List{}, fmt.Errorf("%s: step %d is not there, or not all of it: %w", s.where, step, ErrNone)
	}
	if err != nil {
		return List{}, s.explain(what, err)
	}
	l, err := parseList(text, step)
	if err != nil {
		return List{}, fmt.Errorf("%s: %s: %w", s.where, what, err)
	}
	return l, nil
}

// plain says whether a name is one of a file in the same folder: names become files here.
func plain(name string) bool {
	return name == path.Base(name) && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

func (p Part) valid() bool {
	return p.Bytes >= 8 && len(p.SHA256) == 64 && len(p.ID) == 32 && p.Rank >= 0 && p.Rank < p.Ranks
}

func parseList(text []byte, step uint64) (List, error) {
	var l List
	if len(text) > maxList {
		return l, fmt.Errorf("more than %d bytes: %w", maxList, ErrCorrupt)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&l); err != nil {
		return l, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	if l.Version != version {
		return l, fmt.Errorf("version %d, this program reads %d: %w", l.Version, version, ErrCorrupt)
	}
	if l.Step != step || len(l.Files) == 0 || len(l.Files) > maxFiles {
		return l, fmt.Errorf("of step %d, with %d files: %w", l.Step, len(l.Files), ErrCorrupt)
	}
	names := map[string]bool{}
	for i, p := range l.Files {
		if !plain(p.Name) || !plain(p.Object) || names[p.Name] || p.ID != l.Files[0].ID || !p.valid() {
			return l, fmt.Errorf("files[%d]: %+v is invalid: %w", i, p, ErrCorrupt)
		}
		names[p.Name] = true
	}
	return l, nil
}
