// SGLang's chunked pipeline parallelism (lmsys.org/blog/2026-01-15-chunked-pipeline): its published
// points against RunPipelines with slices timed from the devices' peaks. One number a model is
// fitted: the share of the peaks that its kernels reach, from the TTFT without a pipeline.
//
//   bazel run --config=opt //bench/planner:pipeline
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "scheduler/simulator/pipeline_run.h"

namespace skein::scheduler {
namespace {

// An H20: dense FLOP/s in fp8 and bf16, and one direction of NVLink.
constexpr double kFp8 = 296e12;
constexpr double kBf16 = 148e12;
constexpr double kNvlink = 450e9;
constexpr double kNvlinkShare = 0.8;  // that all-reduces reach

struct Model {
  const char* name;
  int tp;  // devices of a stage
  double layers;
  double hidden;
  double active;         // weights that a token is multiplied with, in fp8
  double pair_flops;     // of a token and one before it, in attention, in one layer; in bf16
  double rebuild_flops;  // of a token of history, once a slice, in one layer; in fp8
  double ttft_s;         // published, of 128K tokens on one stage
};

// DeepSeek-V3's config: 128 heads whose queries have 192 values and whose outputs 128; the keys and
// values of the history are rebuilt from 512 values a token in each slice (MLA).
constexpr Model kDeepSeek = {
    "DeepSeek-V3.1, TP8",          8,   61, 7168, 37e9, 2.0 * 128 * (192 + 128),
    2.0 * 512 * 128 * (128 + 128), 48.5};
// Qwen3-235B-A22B's: 64 heads of 128 values.
constexpr Model kQwen = {"Qwen3-235B-A22B, TP4", 4, 94,  4096, 22e9,
                         2.0 * 64 * (128 + 128), 0, 55.5};

SliceSeconds TimesOf(const Model& model, double share) {
  return [model, share](int64_t history_tokens, int64_t slice_tokens) {
    const auto history = static_cast<double>(history_tokens);
    const auto tokens = static_cast<double>(slice_tokens);
    const double pairs = tokens * (history + tokens / 2);
    const double fp8_flops =
        2 * model.active * tokens + model.layers * model.rebuild_flops * history;
    const double compute_s = fp8_flops / kFp8 + model.layers * model.pair_flops * pairs / kBf16;
    // Two all-reduces a layer of 2 bytes a value; each device sends them 2 (TP - 1) / TP times.
    const double bytes = model.layers * 2 * tokens * model.hidden * 2;
    const double sent = bytes * 2 * (model.tp - 1) / model.tp;
    return compute_s / share / model.tp + sent / (kNvlink * kNvlinkShare);
  };
}

// Stages of whole layers; where they do not divide evenly, the later ones get one more, as SGLang
// recommends.
PipelineOptions Stages(const Model& model, int stages, int64_t slice, double smooth) {
  PipelineOptions options;
  const int layers = static_cast<int>(model.layers);
  for (int stage = 0; stage < stages; ++stage) {
    const int more = stage >= stages - layers % stages ? 1 : 0;
    options.shares.push_back((layers / stages + more) / model.layers);
  }
  options.slice_tokens = slice;
  options.smooth = smooth;
  return options;
}

// Seconds for each of `prompts` that arrive together.
double SecondsOfEach(const PipelineOptions& options, const SliceSeconds& times, int64_t tokens,
                     int prompts) {
  const std::vector<SimRequest> requests(static_cast<size_t>(prompts), {0, tokens, 1});
  const int stages = static_cast<int>(options.shares.size());
  return RunPipelines(requests, stages, options, times).end_s / prompts;
}

constexpr int64_t k128k = 131'072;
constexpr int kPrompts = 16;  // of a throughput test

double FittedShare(const Model& model, int64_t slice) {
  double low = 0.1;
  double high = 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const double ttft_s =
        SecondsOfEach(Stages(model, 1, slice, 0), TimesOf(model, middle), k128k, 1);
    (ttft_s > model.ttft_s ? low : high) = middle;
  }
  return low;
}

void Row(const std::string& what, double published, double ours) {
  std::printf("| %s | %.2f | %.2f | %+.1f %% |\n", what.c_str(), published, ours,
              100 * (ours / published - 1));
}

struct Point {
  const char* name;
  int64_t slice;
  double smooth;
  double published;  // throughput over one stage's
};

void Print(const Model& model, int stages, int64_t base_slice, double pipeline_ttft_s,
           int64_t dynamic_slice, double smooth, const std::vector<Point>& points) {
  const double share = FittedShare(model, base_slice);
  const SliceSeconds times = TimesOf(model, share);
  std::printf(
      "\n### %s: kernels reach %.3f of the peaks (fitted)\n\n"
      "| point | published | ours | residual |\n|---|---|---|---|\n",
      model.name, share);
  const PipelineOptions base = Stages(model, 1, base_slice, 0);
  const double base_s = SecondsOfEach(base, times, k128k, 1);
  Row("one stage: TTFT of 128K, s (fitted)", model.ttft_s, base_s);
  const PipelineOptions dynamic = Stages(model, stages, dynamic_slice, smooth);
  const double ttft_s = SecondsOfEach(dynamic, times, k128k, 1);
  const std::string pp = "PP" + std::to_string(stages);
  Row(pp + ": TTFT of 128K, s", pipeline_ttft_s, ttft_s);
  Row(pp + ": less TTFT, %", 100 * (1 - pipeline_ttft_s / model.ttft_s),
      100 * (1 - ttft_s / base_s));
  for (const Point& point : points) {
    const PipelineOptions options = Stages(model, stages, point.slice, point.smooth);
    Row(pp + ": throughput over one stage's, " + point.name + ", one prompt at a time",
        point.published, base_s / SecondsOfEach(options, times, k128k, 1));
    Row(pp + ": the same, " + std::to_string(kPrompts) + " prompts behind each other",
        point.published, base_s / SecondsOfEach(options, times, k128k, kPrompts));
  }
}

void PrintLengths() {  // table 1 of the page
  const SliceSeconds times = TimesOf(kQwen, FittedShare(kQwen, 6144));
  const PipelineOptions options = Stages(kQwen, 8, 18'432, 0.8);
  const std::pair<int64_t, double> published[] = {
      {k128k, 10.54}, {2 * k128k, 32.68}, {4 * k128k, 114.33}, {8 * k128k, 420.91}};
  for (const auto& [tokens, seconds] : published) {
    Row("PP8: TTFT of " + std::to_string(tokens / 1024) + "K, s", seconds,
        SecondsOfEach(options, times, tokens, 1));
  }
}

int Main() {
  // Fixed slices of 12K are 18.4 % above TP32's 2.54.
  Print(kDeepSeek, 4, 12'288, 15.5, 12'288, 0.65,
        {{"slices from 12K, smooth 0.65", 12'288, 0.65, 3.31},
         {"slices of 4K", 4096, 0, 3.20},
         {"slices of 12K", 12'288, 0, 2.54 * 1.184}});
  // 69.6 % of 8 for slices of 6K.
  Print(kQwen, 8, 6144, 10.5, 18'432, 0.8,
        {{"slices from 18K, smooth 0.8", 18'432, 0.8, 6.14}, {"slices of 6K", 6144, 0, 8 * 0.696}});
  PrintLengths();
  return 0;
}

}  // namespace
}  // namespace skein::scheduler

int main() { return skein::scheduler::Main(); }
