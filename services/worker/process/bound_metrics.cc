#include "services/worker/process/bound_metrics.h"

#include <cstdint>
#include <vector>

namespace skein::services {
namespace {

constexpr double kSecond = 1e-6;

// Those of vllm:inter_token_latency_seconds, which has the same gaps among all others, and two
// before them: a step of a small model takes some milliseconds.
std::vector<double> GapBuckets() {
  std::vector<double> buckets = {0.0025, 0.005};
  buckets.insert(buckets.end(), InterTokenBuckets().begin(), InterTokenBuckets().end());
  return buckets;
}

}  // namespace

StreamGapMetrics::StreamGapMetrics(const std::string& model, Metrics* metrics) {
  for (const bool bind : {true, false}) {
    for (const scheduler::OwnSequences own : kOwn) {
      gaps_[bind ? 0 : 1][static_cast<size_t>(own)] = &metrics->Histogram(
          "skein_formation_stream_gap_seconds",
          "Of each stream that had a token before its instance was bound or released: from the "
          "last token before that to the first one after it.",
          GapBuckets(),
          {{"model_name", model},
           {"kind", bind ? "bind" : "release"},
           {"own", std::string(ToString(own))}});
    }
  }
}

void StreamGapMetrics::Count(const scheduler::StreamGap& gap) const {
  gaps_[gap.bind ? 0 : 1][static_cast<size_t>(gap.own)]->Observe(static_cast<double>(gap.gap_us) *
                                                                 kSecond);
}

void RefreshBoundKv(const scheduler::BatchKv& kv, const std::string& model, Metrics* metrics) {
  const auto set = [&](const char* name, const char* help, int64_t value) {
    metrics->Gauge(name, help, {{"model_name", model}}).Set(static_cast<double>(value));
  };
  set("skein_bound_sequences", "Sequences of the bound group that have KV blocks.", kv.sequences);
  set("skein_bound_kv_blocks", "KV blocks of these sequences, at this instance.", kv.blocks);
  set("skein_bound_kv_blocks_alone",
      "KV blocks that one instance alone would hold for these sequences.", kv.blocks_alone);
}

void RefreshSharing(const engine::SharingTotals& totals, const std::string& model,
                    Metrics* metrics) {
  const auto bytes = [&](const char* source, int64_t count) {
    metrics->Total("skein_shared_weight_bytes_total",
                   "Bytes of feed-forward weights of other instances that this one read, by where "
                   "from.",
                   {{"model_name", model}, {"source", source}}, count);
  };
  bytes("owner", totals.bytes_from_owners);
  bytes("file", totals.bytes_from_file);
  const auto rows = [&](const char* direction, int64_t count) {
    metrics->Total("skein_shared_rows_total",
                   "Rows of activations that this instance sent to owners of weights, or that it "
                   "multiplied with its own weights, for itself too.",
                   {{"model_name", model}, {"direction", direction}}, count);
  };
  rows("sent", totals.rows_sent);
  rows("served", totals.rows_served);
  metrics->Total("skein_shared_calls_given_up_total",
                 "Times that an owner did not multiply this instance's rows in time.",
                 {{"model_name", model}}, totals.calls_given_up);
}

}  // namespace skein::services
