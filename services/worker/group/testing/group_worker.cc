// A decode-worker of a tiny model in a process of its own, for tests (worker_process.h): shell,
// service, engine, transport and communicators are those of the product.
//
//   group_worker DEVICE MODEL_DIR BLOCKS ORCHESTRATOR INDEX LIMIT_US
//
// INDEX is the one of FormationOrchestrator; LIMIT_US is the time for an answer of another rank,
// and a step has twice that. Each line of the input is a command, answered by a line:
//   arm POINT kill|stop   "armed": it ends or stops itself when it next comes to the FaultPoint
//   rest                  when it holds no block any more, or after a minute: "FREE of TOTAL blocks
//                         are free, INVARIANTS"
//   steps [MODE]          how many steps together it has run; of a mode of skein_engine_steps_total
//   made                  "LINKS links, GROUPS communicators": how many it has made since its start
//   numbers               what skeinctl formation --verify reads, as in /metrics, but with ";" at
//                         the ends of lines; and group_step_cpu_seconds, the CPU time of the thread
//                         that runs steps, in those of the group
//   hold                  "held": its engine keeps back the steps that are launched from now on
//   await-held own|group SEQUENCES
//                         lets them go until a step of at least so many sequences that all decode
//                         is held: "BLOCKS of BLOCKS_ALONE", as WatchedEngine::StepKv
//   await-sequences COUNT when so many sequences run here, alone or in the group that it leads, or
//                         after a minute: how many do
//   go                    "gone": lets the steps go
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/log/log.h"
#include "services/worker/group/testing/fault_points.h"
#include "services/worker/group/testing/tiny_model.h"
#include "services/worker/testing/emulated_decode_worker.h"
#include "services/worker/testing/watched_engine.h"

namespace skein::services::testing {
namespace {

std::string Rest(DecodeShell* shell) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  scheduler::BlockCounts blocks;
  do {
    blocks = shell->Look()->snapshot.blocks;
    if (blocks.free == blocks.total) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < until);
  absl::Status invariants = shell->CheckInvariants();
  return absl::StrCat(blocks.free, " of ", blocks.total, " blocks are free, ",
                      invariants.ToString());
}

std::string AwaitSequences(DecodeShell* shell, int64_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  int64_t running = 0;
  do {
    const scheduler::DecodeSnapshot seen = shell->Look()->snapshot;
    running = seen.running + seen.bound;
    if (running == count) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < until);
  return absl::StrCat(running);
}

std::string AwaitHeld(WatchedEngine* engine, bool group, int64_t sequences) {
  engine->HoldAtStep({.group = group, .sequences = sequences, .decodes = true});
  engine->Go();
  const WatchedEngine::StepKv kv = engine->AwaitHeld();
  return absl::StrCat(kv.blocks, " of ", kv.blocks_alone);
}

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string Numbers(DecodeShell* shell, WatchedEngine* engine) {
  std::string text;
  for (const StepTotals& one : shell->StepTotalsByMode()) {
    absl::StrAppend(&text, "skein_engine_steps_total{mode=\"", one.mode, "\",ranks=\"", one.ranks,
                    "\"} ", one.steps, ";");
  }
  for (const engine::CommTotals& one : shell->GroupWays()) {
    absl::StrAppend(&text, "skein_comm_bytes_total{ranks=\"", one.ranks, "\"} ", one.bytes, ";");
  }
  const scheduler::DecodeSnapshot seen = shell->Look()->snapshot;
  absl::StrAppend(&text, "skein_kv_blocks{state=\"held\"} ", seen.blocks.held,
                  ";skein_bound_sequences ", seen.bound_kv.sequences, ";skein_bound_kv_blocks ",
                  seen.bound_kv.blocks, ";skein_bound_kv_blocks_alone ",
                  seen.bound_kv.blocks_alone);
  absl::StrAppend(&text, ";process_cpu_seconds_total ", ProcessCpuSeconds(),
                  ";group_step_cpu_seconds ", engine->GroupCpuSeconds());
  return text;
}

// `mode` is empty: in any.
uint64_t StepsTogether(const DecodeShell& shell, const std::string& mode) {
  uint64_t steps = 0;
  for (const StepTotals& one : shell.StepTotalsByMode()) {
    if (mode.empty() ? one.mode != "own" : one.mode == mode) steps += one.steps;
  }
  return steps;
}

int Main(char** argv) {
  // Libraries may write to stdout, too.
  FILE* const answers = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const auto answer = [answers](const std::string& line) {
    std::fprintf(answers, "%s\n", line.c_str());
    std::fflush(answers);
  };
  const std::string device = argv[1], dir = argv[2], orchestrator = argv[4];
  const int blocks = std::stoi(argv[3]);
  const uint64_t index = std::stoull(argv[5]);
  const scheduler::TimeUs limit_us = std::stoll(argv[6]);
  InitLog("decode-worker", Level::kWarning);
  FaultPoints points;
  FaultRelay relay(orchestrator, &points);
  const auto relayed = ServeRpc("127.0.0.1:0", {&relay});
  SKEIN_CHECK_MSG(relayed.ok(), relayed.status().ToString().c_str());
  auto engine = MakeWorkerEngine(TinyWorkerOptions(device, dir, blocks), scheduler::Role::kDecode);
  SKEIN_CHECK_MSG(engine.ok(), engine.status().ToString().c_str());
  auto watched = std::make_unique<WatchedEngine>(
      std::make_unique<PointedEngine>(std::move(engine->engine), &points));
  WatchedEngine* const steps = watched.get();
  engine->engine = std::move(watched);
  scheduler::DecodeConfig config;
  config.membership.identity.model = "m";
  config.membership.identity.incarnation = {index + 1};
  config.membership.identity.comm_address = engine->fabric->Address();
  config.group.limits = {.answer_us = limit_us, .step_us = 2 * limit_us};
  config.group.step_max_us = 2 * limit_us;
  EmulatedDecodeWorker worker(*std::move(engine), config, 1024,
                              absl::StrCat("127.0.0.1:", relayed->port));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, first, second;
    words >> command >> first >> second;
    if (command == "arm") {
      points.Arm(FaultPointOf(first), second == "stop" ? SIGSTOP : SIGKILL);
      answer("armed");
    } else if (command == "rest") {
      answer(Rest(&worker.shell()));
    } else if (command == "steps") {
      answer(absl::StrCat(StepsTogether(worker.shell(), first)));
    } else if (command == "made") {
      const engine::FabricCounts made = worker.shell().CommMade();
      answer(absl::StrCat(made.links, " links, ", made.groups, " communicators"));
    } else if (command == "numbers") {
      answer(Numbers(&worker.shell(), steps));
    } else if (command == "hold") {
      steps->Hold();
      answer("held");
    } else if (command == "await-held") {
      answer(AwaitHeld(steps, first == "group", std::stoll(second)));
    } else if (command == "await-sequences") {
      answer(AwaitSequences(&worker.shell(), std::stoll(first)));
    } else if (command == "go") {
      steps->Go();
      answer("gone");
    }
  }
  _exit(0);
}

}  // namespace
}  // namespace skein::services::testing

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc != 7) return 2;
  return skein::services::testing::Main(argv);
}
