// Package serve is the control service of real jobs: an HTTP API by which a training job reports how long its rounds took and
// gets the sizes of its next rounds. The controller is the same as in the simulator (agent.Control); the rounds are those of
// package cluster/live.
//
//	s, err := serve.New(ctx, serve.Config{})      // or with Tokens, for other machines
//	err = s.Serve(ctx, listener)             // until ctx is done; jobs end with it
//
// See the Example. The API is described by its OpenAPI document, served as /openapi.json and kept in docs/reference/openapi.json.
//
// A job has one lock. A report is judged under it and answered with the newest sizes, at once or when the journal has the report; the
// decision that follows the report is made afterwards, under the same lock. With a journal (package journal) jobs survive the service: a
// job follows from its entries, so a service that reads them, this one started anew or another one, decides as if nothing had happened.
package serve
