package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"evenkeel/agent/clusters"
	"evenkeel/internal/badinput"
	"evenkeel/internal/chart"
)

// File is a path with the flag that names it.
type File struct{ flag, Path string }

// FileFlag is the path that a flag names.
func FileFlag(flag, path string) File { return File{flag: flag, Path: path} }

func unset(n File) bool { return n.Path == "" }

// CheckFiles reports, before any work, an input that is a folder, and an output that cannot
// be written or would overwrite an input or another output.
func CheckFiles(inputs, outputs []File) error {
	inputs, outputs = slices.DeleteFunc(inputs, unset), slices.DeleteFunc(outputs, unset)
	for _, in := range inputs {
		if info, err := os.Stat(in.Path); err == nil && info.IsDir() && in.flag != profilesFlag {
			return badinput.Errorf("%s: %s is a folder; name a file", in.flag, in.Path)
		}
	}
	if err := CheckDistinct(inputs, outputs); err != nil {
		return err
	}
	for _, out := range outputs {
		if err := checkWritable(out); err != nil {
			return err
		}
	}
	return nil
}

// CheckDistinct reports an output that is also an input or another output.
func CheckDistinct(inputs, outputs []File) error {
	var read []File
	for _, in := range inputs {
		read = append(read, in)
		if in.flag != profilesFlag {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(in.Path, "*")) // of a folder; its reader meets the error
		for _, f := range files {
			read = append(read, FileFlag(in.flag, f))
		}
	}
	for i, out := range outputs {
		for _, in := range read {
			if SameFile(out.Path, in.Path) {
				return badinput.Errorf("%s: %s is read by %s and would be overwritten; choose another file", out.flag, out.Path, in.flag)
			}
		}
		for _, other := range outputs[:i] {
			if SameFile(out.Path, other.Path) {
				return badinput.Errorf("%s: %s is also written by %s; choose another file", out.flag, out.Path, other.flag)
			}
		}
	}
	return nil
}

// checkWritable tries to create a file in the output's folder, as an atomic write does.
func checkWritable(out File) error {
	folder := filepath.Dir(out.Path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return badinput.Errorf("%s: %s: folder %s does not exist", out.flag, out.Path, folder)
	}
	switch info, err := os.Stat(out.Path); {
	case err == nil && info.IsDir():
		return badinput.Errorf("%s: %s is a folder; name a file", out.flag, out.Path)
	case err == nil && !info.Mode().IsRegular() && out.flag != LogFlag:
		return badinput.Errorf("%s: %s is not a regular file", out.flag, out.Path)
	case err == nil && out.flag == LogFlag:
		return nil // written in place: opening it shows
	}
	f, err := os.CreateTemp(folder, ".evenkeel-*")
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		return badinput.Errorf("%s: %s: cannot write to folder %s: %w", out.flag, out.Path, folder, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// SameFile reports whether two paths name one file; files that do not exist yet are
// compared by name.
func SameFile(a, b string) bool {
	first, err := os.Stat(a)
	second, other := os.Stat(b)
	if err == nil && other == nil {
		return os.SameFile(first, second)
	}
	return whole(a) == whole(b)
}

// whole is the absolute path, with symbolic links of its folder resolved.
func whole(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(folder, filepath.Base(path))
	}
	return path
}

// Flags whose files are handled differently.
const (
	profilesFlag = "--profiles" // folders too
	LogFlag      = "--log"      // written line by line
)

// Inputs are the files that --profiles names.
func (f *ProfileFlags) Inputs() []File {
	var out []File
	for _, p := range f.Profiles {
		out = append(out, FileFlag(profilesFlag, p))
	}
	return out
}

// ClusterInput is the file of a cluster; none for an embedded one.
func ClusterInput(name string) File {
	if slices.Contains(clusters.Names(), name) {
		name = ""
	}
	return FileFlag("--cluster", name)
}

// CheckPlot reports a file name under which no figure can be saved.
func CheckPlot(path string) error {
	if path == "" || strings.EqualFold(filepath.Ext(path), ".svg") {
		return nil
	}
	_, text, _ := strings.Cut(chart.ErrExtension.Error(), ": ")
	return badinput.Errorf("--plot: %s: %q", text, path)
}

// WriteFile writes a file atomically.
func WriteFile(path string, write func(io.Writer) error) error {
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644), renameio.WithExistingPermissions())
	if err != nil {
		return err
	}
	return errors.Join(func() error {
		if err := write(f); err != nil {
			return err
		}
		return f.CloseAtomicallyReplace()
	}(), f.Cleanup())
}
