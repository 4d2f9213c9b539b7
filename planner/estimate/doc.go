// Package estimate makes a layer profile without measurements: the shapes of a transformer come from its config.json
// (Hugging Face), times from the data sheets of devices by a roofline (Williams, Waterman and Patterson, Roofline, 2009).
//
// An operation takes the longer of computing and of moving its bytes, at the shares of the data sheet that training
// reaches, and a launch. How far estimates lie from measurements is in docs/results/planner.md.
package estimate
