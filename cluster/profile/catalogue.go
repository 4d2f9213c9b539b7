package profile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Split says whether training may use a device or workload. A profile may be trained on
// only if both its device and its workload are Train; tests of generalisation to new
// hardware and models use profiles with both HeldOut.
type Split string

// The embedded tables use Train and HeldOut; devices and workloads that only a user's
// file names have the empty Split.
const (
	Train   Split = "train"
	HeldOut Split = "heldout"
)

// Device is a type of accelerator. Zero figures are unknown: a user's file may name devices
// that the embedded table does not hold.
type Device struct {
	Name        string  `json:"device"`
	MemoryBytes int64   `json:"memory_bytes"`
	TFLOPS32    float64 `json:"tflops_fp32"`   // nameplate, fp32 without tensor cores
	TFLOPS16    float64 `json:"tflops_fp16"`   // nameplate, dense fp16 and bf16 on tensor cores that add up in fp32; fp32's where the data sheet names none
	Bandwidth   float64 `json:"bandwidth_gbs"` // nameplate, of memory, in GB/s
	Split       Split   `json:"split"`
	Torch       string  `json:"torch"`      // what else torch calls it, words of a name joined by -
	DataSheet   string  `json:"data_sheet"` // address of the nameplate figures
	IdleWatts   float64 `json:"idle_watts"` // without work: a bound from above
	BusyWatts   float64 `json:"busy_watts"` // while it trains, on average
}

// TFLOPS is the nameplate speed for a dtype, "fp16" or anything else for fp32.
func (d Device) TFLOPS(dtype string) float64 {
	if dtype == "fp16" {
		return d.TFLOPS16
	}
	return d.TFLOPS32
}

// Workload is a model with the shape of one sample. Empty fields are unknown.
type Workload struct {
	Name       string `json:"workload"`
	Parameters int64  `json:"parameters"` // 0 = unknown
	Unit       string `json:"unit"`       // what one sample is: sequence, image, user
	DType      string `json:"dtype"`      // autocast type of the measurement: fp32 or fp16
	Split      Split  `json:"split"`
}

// stateBytes is what parameters, gradients and Adam's moments take per parameter. The
// catalogue's peak memory leaves this state out, because its source shards it evenly over
// the nodes; so it is subtracted from every node's memory.
const stateBytes = 16

// StateBytes is one node's part of the model state, which so many nodes share evenly; 0 if unknown.
func (w Workload) StateBytes(nodes int) int64 {
	return stateBytes * w.Parameters / int64(max(nodes, 1))
}

// Source is where points were taken from.
type Source struct {
	Key        string `json:"source"`
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	Licence    string `json:"licence"`
	Files      string `json:"files"` // paths in the repository
}

// Catalogue is a set of profiles by device and workload. The zero Catalogue is empty. It is
// safe for concurrent reads; Add and AddReader need the catalogue to themselves.
type Catalogue struct {
	devices   map[string]Device
	workloads map[string]Workload
	sources   map[string]Source
	profiles  map[pair]*Profile
}

// Add reads a profile file, or every *.csv in a folder (not its subfolders), and adds its
// profiles; one that the catalogue already holds is replaced. On an error nothing is
// added. Errors in the content wrap ErrFormat and list what is wrong with file, line and
// field; others are those of the file system.
func (c *Catalogue) Add(path string) error {
	read, err := readPath(path)
	if err != nil {
		return err
	}
	c.put(read)
	return nil
}

// AddReader is Add for an open file; name appears in errors and is the Source.
func (c *Catalogue) AddReader(name string, r io.Reader) error {
	read, err := parse(name, r)
	if err != nil {
		return err
	}
	c.put(read)
	return nil
}

func (c *Catalogue) put(read []*Profile) {
	if c.profiles == nil {
		*c = Catalogue{map[string]Device{}, map[string]Workload{}, map[string]Source{}, map[pair]*Profile{}}
	}
	for _, p := range read {
		c.profiles[pair{p.Device, p.Workload}] = p
		if _, ok := c.devices[p.Device]; !ok {
			d := append(c.Like(p.Device), Device{})[0] // the figures of its data sheet
			d.Name, d.Split = p.Device, ""
			c.devices[p.Device] = d
		}
		if _, ok := c.workloads[p.Workload]; !ok {
			c.workloads[p.Workload] = Workload{Name: p.Workload}
		}
	}
}

// readPath reads a file or a folder's *.csv. The same series in two files of a folder is an
// error, because the names of the files would decide which one counts.
func readPath(path string) ([]*Profile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	files, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var all []*Profile
	var errs []error
	seen := map[pair]string{}
	found := false
	for _, f := range files {
		if f.IsDir() || !isCSV(f.Name()) {
			continue
		}
		found = true
		name := filepath.Join(path, f.Name())
		read, err := readFile(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, p := range read {
			k := pair{p.Device, p.Workload}
			if first := seen[k]; first != "" {
				errs = append(errs, whole(name, "%s on %s is in %s too: keep one of them", p.Workload, p.Device, first))
			}
			seen[k] = name
		}
		all = append(all, read...)
	}
	if !found {
		errs = append(errs, whole(path, "the folder holds no .csv file"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

func readFile(path string) ([]*Profile, error) {
	if !isCSV(path) {
		return nil, whole(path, "a profile file ends in .csv")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(path, f)
}

func isCSV(name string) bool { return strings.EqualFold(filepath.Ext(name), ".csv") }

func whole(file, format string, args ...any) error {
	return &FileError{File: file, Problems: []Problem{{Text: fmt.Sprintf(format, args...)}}}
}

// Lookup returns the profile of a workload on a device. The error is an *UnknownError.
func (c *Catalogue) Lookup(device, workload string) (*Profile, error) {
	if p, ok := c.profiles[pair{device, workload}]; ok {
		return p, nil
	}
	e := &UnknownError{Device: device, Workload: workload}
	if _, ok := c.devices[device]; !ok {
		e.Field, e.Nearest = "device", nearest(device, slices.Sorted(maps.Keys(c.devices)))
		return nil, e
	}
	if _, ok := c.workloads[workload]; !ok {
		e.Field, e.Nearest = "workload", nearest(workload, slices.Sorted(maps.Keys(c.workloads)))
		return nil, e
	}
	e.Field = "pair"
	for _, p := range c.Profiles() {
		if p.Device == device {
			e.DeviceHas = append(e.DeviceHas, p.Workload)
		}
		if p.Workload == workload {
			e.WorkloadHas = append(e.WorkloadHas, p.Device)
		}
	}
	return nil, e
}

// Like returns the devices that a name means, a user's own included: torch's (NVIDIA GeForce RTX 4090), or the catalogue's in
// another spelling. The device of exactly that name is the first.
func (c *Catalogue) Like(name string) []Device {
	var out []Device
	if d, ok := c.devices[name]; ok {
		out = append(out, d)
	}
	want := plain(name)
	for _, d := range c.Devices() {
		if want != "" && d.Name != name && (plain(d.Name) == want || slices.ContainsFunc(strings.Fields(d.Torch), func(t string) bool { return plain(t) == want })) {
			out = append(out, d)
		}
	}
	return out
}

// plain is a device's name in small letters, without what stands between its words and the words of vendors.
func plain(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune(" -_", r) })
	return strings.Join(slices.DeleteFunc(words, func(w string) bool {
		return slices.Contains([]string{"nvidia", "geforce", "tesla", "amd", "instinct"}, w)
	}), "")
}

// Device returns a device by name.
func (c *Catalogue) Device(name string) (Device, bool) {
	d, ok := c.devices[name]
	return d, ok
}

// Workload returns a workload by name.
func (c *Catalogue) Workload(name string) (Workload, bool) {
	w, ok := c.workloads[name]
	return w, ok
}

// Source returns a source by its key, the Source of embedded profiles.
func (c *Catalogue) Source(key string) (Source, bool) {
	s, ok := c.sources[key]
	return s, ok
}

// Devices returns every device, sorted by name.
func (c *Catalogue) Devices() []Device {
	return slices.SortedFunc(maps.Values(c.devices), func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
}

// Workloads returns every workload, sorted by name.
func (c *Catalogue) Workloads() []Workload {
	return slices.SortedFunc(maps.Values(c.workloads), func(a, b Workload) int { return cmp.Compare(a.Name, b.Name) })
}

// Profiles returns every profile, sorted by device, then workload.
func (c *Catalogue) Profiles() []*Profile {
	return slices.SortedFunc(maps.Values(c.profiles), func(a, b *Profile) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Workload, b.Workload))
	})
}
