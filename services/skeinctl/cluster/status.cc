#include "services/skeinctl/cluster/status.h"

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/flags/flag_parser.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/cluster/cluster_view.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;
using StatusOrError = absl::StatusOr<v1::StatusResponse>;

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

SortBy ParseSort(const std::string& name) {  // one of --sort's values
  return name == "load"     ? SortBy::kLoad
         : name == "kv"     ? SortBy::kKv
         : name == "tokens" ? SortBy::kTokens
                            : SortBy::kRole;
}

std::string Dump(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Colours the health word at the start of the text.
std::string Colored(std::string text, Health::Level level) {
  if (!MayColor()) return text;
  const std::string word = NameOf(level);
  const size_t at = text.find(word);
  if (at == std::string::npos) return text;
  const char* color = level == Health::Level::kHealthy    ? "\x1b[32m"
                      : level == Health::Level::kDegraded ? "\x1b[33m"
                                                          : "\x1b[31m";
  return text.replace(at, word.size(), absl::StrCat(color, word, "\x1b[0m"));
}

// The exit code is the cluster's health; without an orchestrator the cluster cannot serve.
int CodeOfError(const absl::Status& error) {
  return absl::IsUnavailable(error) ? int{kCannotServe} : ExitCodeOf(error);
}

int EndUnwell(const char* command, const absl::Status& error) {
  EndWith(command, error);
  return CodeOfError(error);
}

// Repeats: ask, show, wait.
class Watch {
 public:
  Watch(const char* command, const ViewFlags& flags, const std::string& orchestrator)
      : command_(command),
        flags_(flags),
        sort_(ParseSort(flags.sort)),
        client_(orchestrator),
        names_(ProcessNames::Of(orchestrator, EnvironmentMap())) {}

  // Shows the status once; returns the exit code.
  int Show() {
    const StatusOrError status = client_.Status();
    if (!status.ok()) return EndUnwell(command_, status.status());
    const Health::Level level = HealthOf(*status).level;
    const std::string text = flags_.format == "json"
                                 ? Dump(StatusJson(*status, names_), 2)
                                 : Colored(StatusTable(*status, names_, {.sort = sort_}), level);
    std::fputs(text.c_str(), stdout);
    return ExitCodeOf(level);
  }

  // Runs until a key or a signal ends it, or `count` times; returns the last exit code.
  int Run() {
    CatchStopSignals();
    std::optional<Screen> screen;
    if (flags_.format == "table" && IsTerminal()) screen.emplace();
    int code = kDone;
    for (int64_t shown = 1; !StopSignalled(); ++shown) {
      const StatusOrError status = client_.Status();
      code = status.ok() ? ExitCodeOf(HealthOf(*status).level) : CodeOfError(status.status());
      screen.has_value() ? screen->Draw(Page(status, screen->columns())) : PrintLine(status);
      if (shown == flags_.count || !Wait(&screen)) break;
    }
    return code;
  }

 private:
  std::string Page(const StatusOrError& status, int columns) {
    if (!status.ok()) {
      return absl::StrCat(
          Wrapped(absl::StrCat(Now(), "  ", std::string(status.status().message())), 0, columns),
          "\nq: quit\n");
    }
    const std::string table = StatusTable(
        *status, names_,
        {.sort = sort_, .rates = RatesOf(*status), .width = static_cast<size_t>(columns)});
    return Colored(
        absl::StrCat(table, "\nq quits; sort by r role, l load, k KV, t tokens/s; every ",
                     flags_.interval_s, " s; ", Now().substr(11)),
        HealthOf(*status).level);
  }

  void PrintLine(const StatusOrError& status) {
    const std::string time = Now();
    std::string line;
    if (flags_.format == "json") {
      nlohmann::ordered_json json = {{"time", time}};
      status.ok() ? json.update(StatusJson(*status, names_))
                  : json.update({{"error", std::string(status.status().message())}});
      line = Dump(json, -1);
    } else {
      line = status.ok()
                 ? StatusLine(*status, time)
                 : absl::StrCat(time, " error: ", std::string(status.status().message()), "\n");
    }
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  }

  Rates RatesOf(const v1::StatusResponse& status) {
    const Clock::time_point now = Clock::now();
    Rates rates;
    if (last_.has_value() && status.submitted() >= last_->submitted()) {
      const double seconds = std::chrono::duration<double>(now - last_at_).count();
      rates.requests_per_s = static_cast<double>(status.submitted() - last_->submitted()) / seconds;
      rates.failed_per_s = static_cast<double>(status.failed() - last_->failed()) / seconds;
    }
    last_ = status;
    last_at_ = now;
    return rates;
  }

  // False: the user quit.
  bool Wait(std::optional<Screen>* screen) {
    const auto time = std::chrono::milliseconds(static_cast<int64_t>(flags_.interval_s * 1e3));
    if (!screen->has_value()) {
      WaitUnlessStopped(time);
      return true;
    }
    switch ((*screen)->AwaitKey(time)) {
      case 'q':
        return false;
      case 'r':
        sort_ = SortBy::kRole;
        break;
      case 'l':
        sort_ = SortBy::kLoad;
        break;
      case 'k':
        sort_ = SortBy::kKv;
        break;
      case 't':
        sort_ = SortBy::kTokens;
        break;
    }
    return true;
  }

  const char* const command_;
  const ViewFlags flags_;
  SortBy sort_;
  ClusterClient client_;
  const ProcessNames names_;
  std::optional<v1::StatusResponse> last_;
  Clock::time_point last_at_;
};

int Run(const char* command, const ViewFlags& flags, bool again) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndUnwell(command, orchestrator.status());
  Watch watch(command, flags, *orchestrator);
  return again ? watch.Run() : watch.Show();
}

}  // namespace

void ViewFlags::Register(FlagSet* set) {
  RegisterCluster(&orchestrator, set);
  RegisterFormat(&format, "table", set);
  set->String(&sort, "sort", "Order of the instances.")
      .OneOf({"role", "load", "kv", "tokens"})
      .Value("KEY");
  set->Double(&interval_s, "interval-s", "Time between updates.", 0.1, 3600);
  set->Int(&count, "count", "End after this many updates; 0: run until stopped.", 0, 1 << 30);
}

void StatusFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Show the health of a cluster, its routers and instances with their load, and lost "
      "processes.\n\nThe exit code is the health. ",
      ExitCodesHelp()));
  ViewFlags::Register(set);
  set->Bool(&watch, "watch",
            "Update repeatedly: full screen on a terminal, else one line each time.");
}

void TopFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Show the status on the full screen, updated repeatedly.\n\nKeys: r, l, k, t sort by role, "
      "load, KV, tokens/s; q quits. Where standard output is not a terminal, one line each time. ",
      ExitCodesHelp()));
  ViewFlags::Register(set);
  set->Bool(&once, "once", "Show the screen once, as plain text.");
}

int RunStatus(const StatusFlags& flags) { return Run("status", flags, flags.watch); }

int RunTop(const TopFlags& flags) { return Run("top", flags, !flags.once); }

}  // namespace skein::services
