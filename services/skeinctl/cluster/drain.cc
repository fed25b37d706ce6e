#include "services/skeinctl/cluster/drain.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/http/client.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/cluster/drain_process.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(300);

// Writes one line per change to a file; rewrites the line on a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(bool shown) : shown_(shown), terminal_(IsTerminal()) {}
  ~ProgressLine() { End(); }

  void Show(const std::string& text) {
    if (!shown_ || text == last_) return;
    last_ = text;
    std::printf(terminal_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
    std::fflush(stdout);
  }
  void End() {
    if (shown_ && terminal_ && !last_.empty()) std::printf("\n");
    last_.clear();
  }

 private:
  const bool shown_;
  const bool terminal_;
  std::string last_;
};

std::string JsonOf(const DrainTarget& target, const DrainProgress& progress, bool undone,
                   double waited_s) {
  nlohmann::ordered_json json;
  json["instance"] =
      target.instance == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(target.instance);
  json["label"] = target.label;
  // The undo may not have reached the process yet; it serves as soon as it does.
  json["state"] = !progress.present   ? "gone"
                  : undone            ? "serving"
                  : progress.drained  ? "drained"
                  : progress.draining ? "draining"
                                      : "serving";
  json["safe_to_stop"] = progress.drained && !undone;
  json["running"] = progress.running;
  json["waiting"] = progress.waiting;
  json["held_blocks"] = progress.held_blocks;
  json["waited_s"] = waited_s;
  return json.dump() + "\n";
}

class Drainer {
 public:
  Drainer(const DrainFlags& flags, const std::string& orchestrator)
      : flags_(flags),
        client_(orchestrator),
        names_(ProcessNames::Of(orchestrator, EnvironmentMap())) {}

  absl::Status Run() {
    const auto status = client_.Status();
    if (!status.ok()) return status.status();
    const auto target = FindTarget(*status, names_, flags_.target);
    if (!target.ok()) return target.status();
    target_ = *target;
    if (const absl::Status ordered = Order(); !ordered.ok()) return ordered;
    return flags_.wait ? Wait() : Tell();
  }

 private:
  bool text() const { return flags_.format == "text"; }

  absl::Status Order() {
    v1::DrainRequest request;
    request.set_instance(target_.instance);
    request.set_router(target_.router);
    request.set_undo(flags_.undo);
    request.set_force(flags_.force);
    const absl::Status ordered = client_.Drain(request);
    if (ordered.code() != absl::StatusCode::kFailedPrecondition) return ordered;
    return absl::FailedPreconditionError(
        absl::StrCat(std::string(ordered.message()), ". --force drains it anyway."));
  }

  absl::Status Tell() {
    const auto status = client_.Status();
    if (!status.ok()) return status.status();
    const DrainProgress progress = ProgressOf(*status, target_);
    if (!text()) {
      std::fputs(JsonOf(target_, progress, flags_.undo, 0).c_str(), stdout);
    } else if (flags_.undo) {
      std::printf("%s serves again\n", target_.label.c_str());
    } else {
      std::printf("%s\n%s\n", TextOf(target_, progress).c_str(),
                  "It gets no new requests. Use --wait to wait until it is safe to stop, --undo to "
                  "serve again.");
    }
    return absl::OkStatus();
  }

  bool Done(const DrainProgress& progress) const {
    if (!progress.present) return true;
    return flags_.undo ? !progress.draining : progress.drained;
  }

  absl::Status Wait() {
    CatchStopSignals();
    const Clock::time_point start = Clock::now();
    const auto waited_s = [start] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    DrainProgress progress;
    {
      ProgressLine line(text());
      do {
        const auto status = client_.Status();
        if (!status.ok()) return status.status();
        progress = ProgressOf(*status, target_);
        line.Show(TextOf(target_, progress));
        if (Done(progress)) break;
        WaitUnlessStopped(kLook);
      } while (!StopSignalled() && waited_s() < flags_.timeout_s);
    }
    if (!text()) std::fputs(JsonOf(target_, progress, flags_.undo, waited_s()).c_str(), stdout);
    return EndOf(progress);
  }

  absl::Status EndOf(const DrainProgress& progress) const {
    if (!progress.present && !flags_.undo && progress.gone_why == "has left") {
      return absl::OkStatus();  // it was stopped after it had drained
    }
    if (!progress.present) {
      return absl::AbortedError(absl::StrCat(
          target_.label, " ", progress.gone_why.empty() ? "is gone" : progress.gone_why));
    }
    if (Done(progress)) return absl::OkStatus();
    if (StopSignalled()) {
      return absl::AbortedError(
          absl::StrCat("interrupted; ", TextOf(target_, progress), "; the order stays"));
    }
    return absl::DeadlineExceededError(absl::StrCat("not drained within ", flags_.timeout_s,
                                                    " s: ", TextOf(target_, progress),
                                                    "; the order stays"));
  }

  const DrainFlags flags_;
  ClusterClient client_;
  const ProcessNames names_;
  DrainTarget target_;
};

bool IsOneOf(const std::string& name, const std::vector<std::string>& names) {
  return !name.empty() && std::find(names.begin(), names.end(), name) != names.end();
}

std::string Labelled(const std::string& name, const std::string& what) {
  return name.empty() ? what : absl::StrCat(name, " (", what, ")");
}

}  // namespace

absl::StatusOr<DrainTarget> FindTarget(const v1::StatusResponse& status, const ProcessNames& names,
                                       const std::string& name) {
  std::vector<std::string> known;
  for (const v1::InstanceStatus& one : status.instances()) {
    const v1::RegisterRequest& registration = one.registration();
    const std::string local = names.Find(registration.host(), registration.pid());
    const std::string id = absl::StrCat(one.instance());
    known.push_back(local.empty() ? id : local);
    if (!IsOneOf(name, {id, local, registration.endpoint(), registration.admin_endpoint()})) {
      continue;
    }
    const std::string what = absl::StrCat(RoleName(registration.role()), " instance ", id);
    return DrainTarget{one.instance(), 0, Labelled(local, what)};
  }
  for (const v1::RouterStatus& one : status.routers()) {
    const v1::RouterIdentity& identity = one.identity();
    const std::string local = names.Find(identity.host(), identity.pid());
    known.push_back(local.empty() ? identity.endpoint() : local);
    const std::string only = status.routers_size() == 1 ? "router" : "";
    if (!IsOneOf(name, {only, local, identity.endpoint(), identity.admin_endpoint()})) continue;
    return DrainTarget{0, identity.router(),
                       Labelled(local, absl::StrCat("router ", identity.endpoint()))};
  }
  return absl::NotFoundError(absl::StrCat("'", name,
                                          "' is not an instance or router of this cluster. ",
                                          "Known: ", absl::StrJoin(known, ", ")));
}

DrainProgress ProgressOf(const v1::StatusResponse& status, const DrainTarget& target) {
  DrainProgress progress;
  for (const v1::InstanceStatus& one : status.instances()) {
    if (target.instance == 0 || one.instance() != target.instance) continue;
    progress = {.present = true,
                .draining = one.load().draining(),
                .drained = one.drained(),
                .running = one.load().running(),
                .waiting = one.load().waiting(),
                .held_blocks = one.load().blocks().held(),
                .gone_why = ""};
  }
  for (const v1::RouterStatus& one : status.routers()) {
    if (target.router == 0 || one.identity().router() != target.router) continue;
    progress = {.present = true,
                .draining = one.draining(),
                .drained = one.drained(),
                .running = one.load().running(),
                .waiting = one.load().queued(),
                .held_blocks = 0,
                .gone_why = ""};
  }
  for (const v1::GoneStatus& gone : status.gone()) {
    const bool same = target.instance != 0 && gone.instance() == target.instance;
    if (!progress.present && same && progress.gone_why.empty()) progress.gone_why = gone.why();
  }
  return progress;
}

std::string TextOf(const DrainTarget& target, const DrainProgress& progress) {
  if (!progress.present) {
    return absl::StrCat(target.label, " ",
                        progress.gone_why.empty() ? "is gone" : progress.gone_why);
  }
  if (progress.drained) return absl::StrCat(target.label, " is drained: safe to stop");
  std::string text =
      absl::StrCat(target.label, progress.draining ? " drains: " : " serves: ", progress.running,
                   " running, ", progress.waiting, " waiting");
  if (target.instance != 0) absl::StrAppend(&text, ", ", progress.held_blocks, " KV blocks held");
  return text;
}

void DrainFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Drain an instance or a router: it gets no new requests and finishes those it has; then it "
      "is safe to stop.\n\nThe order outlives a restart of the orchestrator. ",
      ExitCodesHelp()));
  set->OptionalPositional(
      &target, "INSTANCE",
      "An id or endpoint as skeinctl status shows it, or a process's name (decode-1) in "
      "a cluster that deploy/local/up started.");
  RegisterCluster(&orchestrator, set);
  set->Bool(&undo, "undo", "Give it requests again.");
  set->Bool(&force, "force", "Drain it even if nothing else serves in its place.");
  set->Bool(&wait, "wait", "Wait until it is done, and show the progress.");
  set->Double(&timeout_s, "timeout-s", "Longest wait.", 0.1, 86400);
  set->Double(&after_s, "after-s",
              "Time to wait first; a preStop hook waits until no load balancer sends anything new.",
              0, 3600);
  set->String(&admin, "admin",
              "Admin port of the process itself, in place of INSTANCE: works without an "
              "orchestrator, as in a preStop hook.")
      .Value("HOST:PORT");
  set->String(&admin_token_file, "admin-token-file",
              "File of the token, for --admin on another host.")
      .Value("FILE");
  RegisterFormat(&format, "text", set);
  set->Check([this] {
    if (target.empty() == admin.empty()) {
      return absl::InvalidArgumentError(
          target.empty() ? "INSTANCE or --admin is required"
                         : absl::StrCat("'", target, "': give INSTANCE or --admin, not both"));
    }
    if (admin.empty()) return absl::OkStatus();
    const absl::Status parsed = http::ParseAddress(admin).status();
    return parsed.ok() ? parsed
                       : absl::InvalidArgumentError(
                             absl::StrCat("--admin: ", std::string(parsed.message())));
  });
}

int RunDrain(const DrainFlags& flags) {
  std::this_thread::sleep_for(std::chrono::duration<double>(flags.after_s));
  if (!flags.admin.empty()) {
    const absl::Status done = DrainProcess(flags);
    return done.ok() ? int{kDone} : EndWith("drain", done);
  }
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("drain", orchestrator.status());
  const absl::Status done = Drainer(flags, *orchestrator).Run();
  return done.ok() ? int{kDone} : EndWith("drain", done);
}

}  // namespace skein::services
