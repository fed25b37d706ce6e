#include "services/worker/process/bound_metrics.h"

#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

using scheduler::OwnSequences;

void Expect(const Metrics& metrics, const std::string& line) {
  const std::string text = metrics.Render();
  EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << "\n" << text;
}

std::string Series(const char* part, const char* kind, const char* own) {
  return std::string("skein_formation_stream_gap_seconds_") + part + "{kind=\"" + kind +
         "\",model_name=\"m\",own=\"" + own + "\"} ";
}

TEST(StreamGapMetrics, AllSeriesExistFromTheStart) {
  Metrics metrics;
  const StreamGapMetrics gaps("m", &metrics);
  for (const char* kind : {"bind", "release"}) {
    for (const char* own : {"share", "sequential", "soft", "hard"}) {
      Expect(metrics, Series("count", kind, own) + "0");
    }
  }
}

TEST(StreamGapMetrics, AGapIsCountedByKindAndOwnSequences) {
  Metrics metrics;
  const StreamGapMetrics gaps("m", &metrics);
  gaps.Count({.bind = true, .own = OwnSequences::kHardPreempt, .gap_us = 2'500'000});
  gaps.Count({.bind = false, .own = OwnSequences::kShare, .gap_us = 250'000});
  gaps.Count({.bind = false, .own = OwnSequences::kShare, .gap_us = 4'000});
  Expect(metrics, Series("sum", "bind", "hard") + "2.5");
  Expect(metrics, Series("count", "bind", "hard") + "1");
  Expect(metrics, Series("count", "release", "share") + "2");
  Expect(metrics, Series("count", "bind", "share") + "0");
  Expect(metrics,
         "skein_formation_stream_gap_seconds_bucket{kind=\"release\",model_name=\"m\",own=\"share\""
         ",le=\"0.005\"} 1");
}

TEST(RefreshBoundKv, TheBlocksOfAnInstanceAreBesideThoseOfOneAlone) {
  Metrics metrics;
  RefreshBoundKv({.sequences = 3, .blocks = 7, .blocks_alone = 25}, "m", &metrics);
  Expect(metrics, "skein_bound_sequences{model_name=\"m\"} 3");
  Expect(metrics, "skein_bound_kv_blocks{model_name=\"m\"} 7");
  Expect(metrics, "skein_bound_kv_blocks_alone{model_name=\"m\"} 25");
  RefreshBoundKv({}, "m", &metrics);
  Expect(metrics, "skein_bound_kv_blocks{model_name=\"m\"} 0");
}

TEST(RefreshSharing, AllSeriesExistFromTheStart) {
  Metrics metrics;
  RefreshSharing({}, "m", &metrics);
  for (const char* series : {"skein_shared_weight_bytes_total{model_name=\"m\",source=\"owner\"} 0",
                             "skein_shared_weight_bytes_total{model_name=\"m\",source=\"file\"} 0",
                             "skein_shared_rows_total{direction=\"sent\",model_name=\"m\"} 0",
                             "skein_shared_rows_total{direction=\"served\",model_name=\"m\"} 0",
                             "skein_shared_calls_given_up_total{model_name=\"m\"} 0"}) {
    Expect(metrics, series);
  }
  RefreshSharing({.bytes_from_owners = 30,
                  .bytes_from_file = 4,
                  .rows_sent = 5,
                  .rows_served = 6,
                  .calls_given_up = 7},
                 "m", &metrics);
  for (const char* series :
       {"skein_shared_weight_bytes_total{model_name=\"m\",source=\"owner\"} 30",
        "skein_shared_weight_bytes_total{model_name=\"m\",source=\"file\"} 4",
        "skein_shared_rows_total{direction=\"sent\",model_name=\"m\"} 5",
        "skein_shared_rows_total{direction=\"served\",model_name=\"m\"} 6",
        "skein_shared_calls_given_up_total{model_name=\"m\"} 7"}) {
    Expect(metrics, series);
  }
}

}  // namespace
}  // namespace skein::services
