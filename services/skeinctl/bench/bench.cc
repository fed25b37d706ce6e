#include "services/skeinctl/bench/bench.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/signal_set.hpp"
#include "services/base/file.h"
#include "services/flags/command_line.h"
#include "services/skeinctl/bench/ask_for_model.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/terminal/progress.h"

namespace skein::services {
namespace bench {
namespace {

constexpr int kInterrupted = 130;

int64_t UnixUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int Failed(const absl::Status& status, ExitCode code) {
  return PrintErrors("skeinctl bench", status, code);
}

// One phase of a load, with progress output; SIGINT ends it early.
class Phase {
 public:
  Phase(boost::asio::io_context* io, HttpClient* client, const Target& target,
        const std::vector<LoadRequest>& requests, RunOptions options, const char* name)
      : progress_(name, std::max<int64_t>(1, static_cast<int64_t>(requests.size()))),
        signals_(*io, SIGINT),
        runner_(
            io, client, target, requests, std::move(options), [this] { progress_.Step(""); },
            [this] { signals_.cancel(); }) {
    signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (!error) runner_.Cancel();
    });
  }

  std::vector<RequestRecord> Run() { return runner_.Run(); }
  bool cancelled() const { return runner_.cancelled(); }

 private:
  Progress progress_;
  boost::asio::signal_set signals_;
  Runner runner_;
};

absl::Status Write(const BenchFlags& flags, const BenchPlan& plan, const Statistics& statistics,
                   const std::vector<RequestRecord>& records) {
  const std::string json = AiperfJson(plan.description, statistics);
  std::fputs((flags.format == "json" ? json : Table(plan.description, statistics)).c_str(), stdout);
  absl::Status status;
  if (!flags.out.empty()) status.Update(WriteFile(flags.out, json));
  if (!flags.records_out.empty()) {
    status.Update(WriteFile(flags.records_out, RecordLines(plan.description, records)));
  }
  return status;
}

int Measure(const BenchFlags& flags, BenchPlan* plan) {
  boost::asio::io_context io(1);
  HttpClient client(&io, plan->security);
  if (absl::Status s = client.Resolve(plan->target.url); !s.ok()) return Failed(s, kFailed);
  if (plan->target.model.empty()) {
    auto model = AskForModel(&io, &client, plan->target);
    if (!model.ok()) {
      return Failed(absl::UnavailableError(absl::StrCat(flags.url, ": ", model.status().message())),
                    kFailed);
    }
    plan->target.model = plan->description.model = *std::move(model);
  }
  if (!plan->warmup.empty()) {
    RunOptions options = plan->options;
    options.due_s.clear();
    options.duration_s = 0;
    options.concurrency = std::max<int64_t>(1, options.concurrency);
    Phase warmup(&io, &client, plan->target, plan->warmup, options, "warm-up, requests ended");
    warmup.Run();
    if (warmup.cancelled()) return kInterrupted;
  }
  plan->description.started_unix_us = UnixUs();
  std::vector<RequestRecord> records;
  {
    Phase measured(&io, &client, plan->target, plan->requests, plan->options,
                   "bench, requests ended");
    records = measured.Run();
    plan->description.cancelled = measured.cancelled();
  }
  const Statistics statistics =
      Summarise(records, plan->target.streaming, plan->description.objectives);
  const absl::Status written = Write(flags, *plan, statistics, records);
  if (!written.ok()) return Failed(written, kFailed);
  if (plan->description.cancelled) return kInterrupted;
  return statistics.failed == 0 ? kDone : kFailed;
}

}  // namespace
}  // namespace bench

int RunBench(const bench::BenchFlags& given) {
  bench::BenchFlags flags = given;
  if (flags.url.empty()) {
    const auto cluster = FindLocalCluster(EnvironmentMap());
    flags.url = cluster.ok() ? cluster->url : "http://127.0.0.1:8000";
  }
  auto plan = bench::MakePlan(flags);
  if (!plan.ok()) return bench::Failed(plan.status(), kUsage);
  return bench::Measure(flags, &*plan);
}

}  // namespace skein::services
