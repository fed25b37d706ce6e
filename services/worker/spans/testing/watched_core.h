// A worker's core and the spans made of what it does, as the worker's shell runs both.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/worker/testing/core_testing.h"
#include "services/tracing/span.h"
#include "services/tracing/tracer.h"

namespace skein::services::testing {

inline constexpr char kTraced[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
inline constexpr char kUnsampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
inline constexpr uint64_t kParent = 0x00f067aa0ba902b7;  // the span that kTraced names
inline constexpr uint64_t kSelf = 3;                     // the instance that the core is

// The spans of that name, in their order.
inline std::vector<Span> Named(const std::vector<Span>& all, std::string_view name) {
  std::vector<Span> found;
  for (const Span& span : all) {
    if (span.name == name) found.push_back(span);
  }
  return found;
}

// A span's attribute; -1: it has none of that name that is a number.
inline int64_t Number(const Span& span, std::string_view name) {
  for (const SpanAttribute& one : span.attributes) {
    const auto* number = std::get_if<int64_t>(&one.value);
    if (one.name == name && number != nullptr) return *number;
  }
  return -1;
}

// Registered as instance kSelf. Each event takes 1,000 us.
template <class Core, class Event, class Effect, class Spans>
class WatchedCoreTest : public ::testing::Test {
 protected:
  using Effects = std::vector<Effect>;

  template <class Config>
  explicit WatchedCoreTest(Config config) : core_(std::move(config)) {
    Do(scheduler::Tick{});
    Do(scheduler::RegisterReplied{{absl::OkStatus(), {kSelf}, 1'000'000'000}});
  }
  // The effects of the event, and of the answers to the reports that came of it.
  Effects Do(const Event& event) {
    now_ += 1000;
    Effects effects = core_.Handle(event, now_);
    spans_.Saw(event, effects, now_);
    for (const auto& report : scheduler::testing::Of<scheduler::CallReport>(effects)) {
      for (const Effect& more : Do(scheduler::ReportReplied{report.request.serial, {}})) {
        effects.push_back(more);
      }
    }
    return effects;
  }

  int64_t now_ = 0;
  Core core_;
  Tracer tracer_{TracerOptions()};
  Spans spans_{&tracer_};
};

}  // namespace skein::services::testing
