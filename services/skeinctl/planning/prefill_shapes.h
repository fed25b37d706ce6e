// The shapes in which prefill instances compute a prompt together, for skeinctl profile: which are
// measured, what is fitted to their times, and which of them the profile keeps. Pure.
//
// So many instances are (SP, TP) = (instances / tp, tp): each tp neighbours compute the dense part
// together (PlanChunk::tp). Each number of instances has coefficients of equation 1 of Tetris
// (section 5.1) with tp = 1, the "sp" of a profile. A shape with tp > 1 has its own, in "tensor",
// if kShapeNeighbours measured lengths that follow one another gain from it (all, where fewer are
// measured): by kShapeWin at least in the medians, and in the fits, too. A single one may be noise.
// TP reads fewer weights and moves more bytes, so it pays for short prompts at most.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/plan/latency/fit.h"
#include "scheduler/plan/latency/latency_model.h"

namespace skein::services {

inline constexpr double kShapeWin = 0.02;
inline constexpr int kShapeNeighbours = 3;
inline constexpr uint32_t kShapeInstancesMost = 8;

// Each power of two up to `instances`, kShapeInstancesMost at most, with each tp from 1 up to it.
std::vector<scheduler::PrefillShape> ShapesUpTo(int64_t instances);
// "one instance", "4 instances as SP 2 x TP 2".
std::string NameOf(const scheduler::PrefillShape& shape);

// A chunk, or a piece of one, that instances computed together, as one of them tells it or as it
// took all of them.
struct ChunkTime {
  scheduler::PrefillShape shape;
  int64_t history_tokens = 0;
  int64_t chunk_tokens = 0;  // of all
  double seconds = 0;
};
// From what each instance tells to one time for all: the shortest, which is that of the instance
// that began last, because the others waited for it. A piece that more instances tell of than its
// shape has was computed more than once, and stays as often.
std::vector<ChunkTime> MergeMembers(const std::vector<ChunkTime>& told);

// The medians of one shape, with the number of its instances as their sp.
struct ShapeSamples {
  scheduler::PrefillShape shape;
  std::vector<scheduler::LatencySample> medians;
};

struct ShapeFits {
  std::map<int, scheduler::SpCoefficients> sizes;  // LatencyModel::Make takes both
  std::vector<scheduler::TensorShape> tensor;      // those that the profile keeps
  std::string table;                               // for people: residuals, and what is kept
  absl::Status refused;                            // why shapes are missing, a line each
};
// A shape whose samples are refused is left out, and so are those with tp > 1 of a number of
// instances that has no fit with tp = 1.
ShapeFits FitShapes(const std::vector<ShapeSamples>& measured);

// The samples of shapes with tp > 1 as lines of comment, which skeinctl fit skips:
// "# prefill,4,2,0,512,0.0123" with instances, tp, history, chunk and seconds.
std::string TensorCsv(const std::vector<ShapeSamples>& measured);

}  // namespace skein::services
