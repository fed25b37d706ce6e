#include "services/skeinctl/chaos/chaos.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/base/file.h"
#include "services/base/version.h"
#include "services/flags/command_line.h"
#include "services/skeinctl/bench/ask_for_model.h"
#include "services/skeinctl/chaos/batch_load.h"
#include "services/skeinctl/chaos/chaos_load.h"
#include "services/skeinctl/chaos/chaos_player.h"
#include "services/skeinctl/chaos/fault_table.h"
#include "services/skeinctl/chaos/formation_orders.h"
#include "services/skeinctl/chaos/handoff_load.h"
#include "services/skeinctl/chaos/kubernetes_target.h"
#include "services/skeinctl/chaos/load_mix.h"
#include "services/skeinctl/chaos/local_target.h"
#include "services/skeinctl/chaos/near_tie.h"
#include "services/skeinctl/chaos/scenario.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/terminal/screen.h"
#include "services/tls/security.h"

namespace skein::services {
namespace chaos {
namespace {

constexpr int kInterrupted = 130;
constexpr double kStallMinS = 0.25;
constexpr int64_t kProbes = 4;

// "2 x AMD EPYC, Linux 6.1"
std::string MachineText() {
  std::string processor = "unknown processor";
  if (const auto cpu = ReadFile("/proc/cpuinfo"); cpu.ok()) {
    for (const absl::string_view line : absl::StrSplit(*cpu, '\n')) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(line, absl::MaxSplits(": ", 1));
      if (!absl::StartsWith(line, "model name")) continue;
      processor = field.second;
      break;
    }
  }
  utsname system{};
  uname(&system);
  return absl::StrCat(std::thread::hardware_concurrency(), " x ", processor, ", ", system.sysname,
                      " ", system.release);
}

MixOptions MixOf(const ChaosFlags& flags) {
  return {.requests = flags.prompts,
          .prompt_tokens = flags.prompt_tokens,
          .tokens = flags.tokens,
          .seed = static_cast<uint64_t>(flags.seed),
          .short_share = flags.short_share,
          .short_tokens = flags.short_tokens};
}

std::string LoadText(const ChaosFlags& flags) {
  const std::string shorts =
      flags.short_share == 0 ? ""
                             : absl::StrFormat("; %g %% of the requests have answers of %d tokens",
                                               flags.short_share * 100, flags.short_tokens);
  return absl::StrFormat(
      "%d streams of %d to %d tokens, %d different requests of all kinds, half of them sampled, "
      "prompts of %d tokens%s",
      flags.streams, flags.tokens, 2 * flags.tokens - flags.tokens / flags.prompts, flags.prompts,
      flags.prompt_tokens, shorts);
}

std::string ClusterText(const ChaosTarget& target, const std::vector<ChaosProcess>& processes) {
  std::map<std::string, int> counts;
  for (const ChaosProcess& one : processes) ++counts[one.role];
  std::vector<std::string> parts;
  parts.reserve(counts.size() + 1);
  for (const auto& [role, count] : counts) parts.push_back(absl::StrCat(count, " ", role));
  parts.push_back(target.Describe());
  return absl::StrJoin(parts, ", ");
}

class Chaos {
 public:
  explicit Chaos(const ChaosFlags& flags) : flags_(flags) {}

  int Run() {
    CatchStopSignals();
    if (const absl::Status ready = Prepare(); !ready.ok()) return EndWith("chaos", ready);
    if (!Agreed()) return kUsage;
    if (const absl::Status expected = AskAlone(); !expected.ok()) return End(expected);
    return End(PlayAll());
  }

 private:
  void Tell(const std::string& line) const { std::fprintf(stderr, "%s\n", line.c_str()); }

  absl::Status Prepare() {
    if (!flags_.kubernetes) {
      const auto found = FindOrchestrator(flags_.orchestrator, EnvironmentMap());
      if (!found.ok()) return found.status();
      orchestrator_ = *found;
    }
    target_ = MakeTarget();
    auto processes = target_->Processes();
    if (!processes.ok()) return processes.status();
    processes_ = *std::move(processes);
    head_ = {.version = kVersion,
             .machine = MachineText(),
             .cluster = ClusterText(*target_, processes_),
             .load = LoadText(flags_)};
    choice_ = Choose(flags_.scenarios, [this](Fault fault) { return target_->Allows(fault); });
    head_.left_out = choice_.left_out;
    if (!choice_.left_out.empty()) Tell(choice_.left_out);
    return PrepareLoad();
  }

  std::unique_ptr<ChaosTarget> MakeTarget() const {
    if (flags_.kubernetes) {
      return std::make_unique<KubernetesTarget>(KubernetesOptions{.kubectl = flags_.kubectl,
                                                                  .kubeconfig = flags_.kubeconfig,
                                                                  .name_space = flags_.name_space});
    }
    return std::make_unique<LocalTarget>(orchestrator_,
                                         LocalOptions{.restarts_itself = flags_.restarts_itself,
                                                      .restart_with = flags_.restart_with},
                                         [orchestrator = orchestrator_] {
                                           return ProcessNames::Of(orchestrator, EnvironmentMap());
                                         });
  }

  absl::StatusOr<std::vector<std::string>> RouterUrls() const {
    if (!flags_.urls.empty()) return flags_.urls;
    const auto status = ClusterClient(orchestrator_).Status();
    if (!status.ok()) return status.status();
    std::vector<std::string> urls;
    urls.reserve(static_cast<size_t>(status->routers_size()));
    for (const v1::RouterStatus& one : status->routers()) urls.push_back(one.identity().endpoint());
    if (urls.empty()) return absl::UnavailableError("the orchestrator knows no router; give --url");
    return urls;
  }

  absl::Status PrepareLoad() {
    const auto urls = RouterUrls();
    if (!urls.ok()) return urls.status();
    requests_ = MixedRequests(MixOf(flags_));
    LoadOptions options{
        .routers = {},
        .model = flags_.model,
        .api_key = flags_.api_key,
        .requests = requests_,
        .streams = flags_.streams,
        .hung_after = std::chrono::milliseconds(static_cast<int64_t>(flags_.hung_after_s * 1000))};
    options.routers.reserve(urls->size());
    for (const std::string& text : *urls) {
      auto url = bench::ParseUrl(text, tls::ProcessSecurity().certificates != nullptr);
      if (!url.ok()) return url.status();
      options.routers.push_back(*std::move(url));
    }
    const char* key = std::getenv("OPENAI_API_KEY");
    if (options.api_key.empty() && key != nullptr) options.api_key = key;
    if (options.model.empty()) {
      auto model = ModelOf(options);
      if (!model.ok()) return model.status();
      options.model = *std::move(model);
    }
    load_options_ = options;
    model_ = options.model;
    load_ = std::make_unique<ChaosLoad>(std::move(options));
    return load_->Open();
  }

  static absl::StatusOr<std::string> ModelOf(const LoadOptions& options) {
    boost::asio::io_context io(1);
    bench::HttpClient client(&io);
    const bench::Url& url = options.routers.front();
    if (absl::Status resolved = client.Resolve(url); !resolved.ok()) return resolved;
    return bench::AskForModel(&io, &client, {.url = url, .model = "", .api_key = options.api_key});
  }

  // skeinctl has started none of these processes.
  bool Agreed() const {
    if (flags_.yes || choice_.scenarios.size() == 1) return true;
    std::string text = absl::StrCat(absl::StrJoin(flags_.scenarios, ", "),
                                    ": this breaks processes of a running cluster, and all its "
                                    "clients feel it:\n");
    for (const ChaosProcess& one : processes_) {
      if (!one.reachable) continue;
      absl::StrAppend(&text, "  ", one.name,
                      one.pid == 0 ? "" : absl::StrCat(", process ", one.pid), "\n");
    }
    std::fprintf(stderr, "%sGo on? [y/N] ", text.c_str());
    std::string answer;
    if (isatty(STDIN_FILENO) == 1) std::getline(std::cin, answer);
    if (answer == "y" || answer == "yes") return true;
    std::fputs("\n", stderr);
    PrintErrors("skeinctl chaos",
                absl::InvalidArgumentError("nobody agreed, so nothing was broken; answer y, or "
                                           "give --yes"),
                kUsage);
    return false;
  }

  absl::Status AskAlone() {
    Tell(absl::StrFormat("%d requests, each alone", requests_.size()));
    references_.reserve(requests_.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (StopSignalled()) return absl::AbortedError("interrupted");
      auto record = Alone(i);
      if (!record.ok()) return record.status();
      if (record->choices[0].answer.tokens.empty()) {
        return absl::UnavailableError("the server sends no token_ids: it is no Skein router");
      }
      references_.push_back(ReferenceOf(requests_[i], *record));
    }
    return absl::OkStatus();
  }

  // A request that this model cannot have is replaced by one that it can.
  absl::StatusOr<StreamRecord> Alone(size_t index) {
    StreamRequest& request = requests_[index];
    auto record = load_->Alone(index);
    if (absl::IsInvalidArgument(record.status()) && !request.message.empty()) {
      Tell(absl::StrCat("No chat in the load: ", std::string(record.status().message())));
      request.kind = "greedy";
      request.message.clear();
      load_->Replace(index, request);
      return load_->Alone(index);
    }
    if (!record.ok() || request.kind != "stop") return record;
    request.stop = StopIn(record->choices[0].answer.text);
    if (request.stop.empty()) {
      Tell("No stop string in the load: the answer has no text that could be one.");
      request.kind = "sampled";
      return record;
    }
    load_->Replace(index, request);
    return load_->Alone(index);
  }

  // Null: no difference is allowed.
  TieJudge Ties() {
    if (!flags_.near_ties) return nullptr;
    return [this](const Reference& reference, const Answer& got, size_t parted,
                  int32_t reference_token) {
      const auto body =
          load_->Post("/v1/completions", ForcingBody(model_, reference.prompt, got.tokens));
      if (!body.ok()) {
        Tell(absl::StrCat("No scores for an answer that differs: ", body.status().ToString()));
        return false;
      }
      const auto forced = ParseForced(*body, reference.prompt.size());
      if (!forced.ok()) Tell(forced.status().ToString());
      return forced.ok() && forced->size() == got.tokens.size() &&
             IsNearTie(*forced, parted, reference_token);
    };
  }

  absl::Status PlayAll() {
    PlayOptions options{.streams = flags_.streams,
                        .probes = kProbes,
                        .stop_s = flags_.stop_s,
                        .restart_after_s = flags_.restart_after_s,
                        .fault_every_s = flags_.fault_every_s,
                        .duration_s = flags_.duration_s,
                        .rounds = flags_.rounds,
                        .whole_within_s = flags_.whole_within_s,
                        .seed = static_cast<uint64_t>(flags_.seed),
                        .spare = flags_.spare,
                        .stall_s = kStallMinS,
                        .ties = Ties()};
    ChaosPlayer player(target_.get(), load_.get(), references_, std::move(options), MomentsOf(),
                       [this](const std::string& line) { Tell(line); });
    for (const Scenario* scenario : choice_.scenarios) {
      auto row = player.Play(*scenario);
      if (!row.ok()) return row.status();
      if (scenario->play == Play::kNothing) {
        head_.stall_s = std::max(kStallMinS, 2 * row->GapPercentile(99));
        player.SetStall(head_.stall_s);
        if (row->wrong + row->lost + row->doubled > 0) {
          Tell(
              "Answers differ without any fault: start the workers with --reproducible=on, or "
              "give --near-ties; else what a fault changes cannot be told.");
        }
      }
      rows_.push_back(*std::move(row));
    }
    return absl::OkStatus();
  }

  Moments MomentsOf() {
    Moments moments{
        .bind = [orders = FormationOrders(orchestrator_)] { return orders.Bind(); },
        .release = [orders = FormationOrders(orchestrator_)] { return orders.Release(); },
        .switch_formation = [orders = FormationOrders(orchestrator_)](
                                bool bind, bool at_once,
                                const auto& seen) { return orders.Switch(bind, at_once, seen); },
        .handoffs = nullptr,
        .batch = nullptr};
    batch_ = std::make_unique<BatchLoad>(load_options_,
                                         BatchOptions{.lines = flags_.batch_lines,
                                                      .prompt_tokens = flags_.prompt_tokens,
                                                      .tokens = flags_.tokens,
                                                      .seed = static_cast<uint64_t>(flags_.seed)});
    moments.batch = batch_.get();
    if (orchestrator_.empty()) return moments;  // with --kubernetes nobody tells of handoffs
    handoffs_ = std::make_unique<HandoffLoad>(
        load_options_, flags_.handoff_prompt_tokens, static_cast<uint64_t>(flags_.seed),
        [client = std::make_shared<ClusterClient>(orchestrator_)] {
          v1::ListRequestsRequest latest;
          latest.set_limit(64);
          return client->Requests(latest);
        });
    moments.handoffs = handoffs_.get();
    return moments;
  }

  // Prints what was played; the exit code.
  int End(const absl::Status& played) {
    if (!rows_.empty()) {
      const std::string json = FaultJson(head_, rows_);
      const std::string text = flags_.format == "json"       ? json
                               : flags_.format == "markdown" ? FaultMarkdown(head_, rows_)
                                                             : FaultText(head_, rows_);
      std::fputs(text.c_str(), stdout);
      if (!flags_.out.empty()) {
        if (const absl::Status written = WriteFile(flags_.out, json); !written.ok()) {
          return EndWith("chaos", written);
        }
      }
    }
    if (absl::IsAborted(played) && StopSignalled()) return kInterrupted;
    if (!played.ok()) return EndWith("chaos", played);
    const bool good =
        std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.good(); });
    return good ? int{kDone} : int{kDegraded};
  }

  const ChaosFlags flags_;
  std::string orchestrator_;  // empty with Kubernetes
  std::unique_ptr<ChaosTarget> target_;
  std::vector<ChaosProcess> processes_;
  Choice choice_;
  LoadOptions load_options_;
  std::unique_ptr<ChaosLoad> load_;
  std::unique_ptr<HandoffLoad> handoffs_;  // null with --kubernetes
  std::unique_ptr<BatchLoad> batch_;
  std::string model_;
  std::vector<StreamRequest> requests_;
  std::vector<Reference> references_;
  TableHead head_;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace chaos

int RunChaos(const ChaosFlags& flags) { return chaos::Chaos(flags).Run(); }

}  // namespace skein::services
