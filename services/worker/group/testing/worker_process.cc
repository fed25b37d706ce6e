#include "services/worker/group/testing/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::services::testing {
namespace {

constexpr char kProgram[] = "services/worker/group/testing/group_worker";

}  // namespace

WorkerProcess::WorkerProcess(const Options& options, const std::string& orchestrator,
                             uint64_t index) {
  signal(SIGPIPE, SIG_IGN);
  int commands[2], answers[2];
  SKEIN_CHECK(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, commands[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::vector<std::string> words = {kProgram,
                                    options.device,
                                    options.model_dir,
                                    absl::StrCat(options.blocks),
                                    orchestrator,
                                    absl::StrCat(index),
                                    absl::StrCat(options.limit_us)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, kProgram, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(commands[0]);
  close(answers[1]);
  SKEIN_CHECK_MSG(error == 0, "group_worker must be in the test's data");
  to_ = fdopen(commands[1], "w");
  from_ = fdopen(answers[0], "r");
  SKEIN_CHECK(to_ != nullptr && from_ != nullptr);
}

WorkerProcess::~WorkerProcess() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::fclose(to_);
  std::fclose(from_);
}

std::string WorkerProcess::Ask(const std::string& command) {
  std::fprintf(to_, "%s\n", command.c_str());
  std::fflush(to_);
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&line, &capacity, from_);
  std::string text = length > 0 ? std::string(line, static_cast<size_t>(length - 1)) : "";
  std::free(line);
  return text;
}

void WorkerProcess::Arm(FaultPoint point, int signal) {
  const std::string how = signal == SIGSTOP ? "stop" : "kill";
  const std::string answer = Ask(absl::StrCat("arm ", NameOf(point), " ", how));
  SKEIN_CHECK_MSG(answer == "armed", answer.c_str());
}

bool WorkerProcess::Struck() {
  int status = 0;
  if (struck_ || waitpid(pid_, &status, WNOHANG | WUNTRACED) != pid_) return struck_;
  ended_ = !WIFSTOPPED(status);
  return struck_ = true;
}

void WorkerProcess::Continue() {
  struck_ = false;
  kill(pid_, SIGCONT);
}

}  // namespace skein::services::testing
