#include "engine/model/testing/ranks/group_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

GroupProcess::GroupProcess(const std::string& model_dir, const std::string& tls) {
  signal(SIGPIPE, SIG_IGN);  // a rank that died is heard, not felt
  int commands[2], answers[2];
  SKEIN_CHECK(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, commands[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::string path = "engine/model/testing/ranks/group_rank", dir = model_dir, wires = tls;
  char* const argv[] = {path.data(), dir.data(), wires.data(), nullptr};
  const int error = posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(commands[0]);
  close(answers[1]);
  SKEIN_CHECK_MSG(error == 0, "engine/model/testing/ranks/group_rank must be in the test's data");
  to_ = fdopen(commands[1], "w");
  from_ = fdopen(answers[0], "r");
  SKEIN_CHECK(to_ != nullptr && from_ != nullptr);
  address_ = Hear();
}

GroupProcess::~GroupProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::fclose(to_);
  std::fclose(from_);
}

void GroupProcess::Tell(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
}

std::string GroupProcess::Hear() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&line, &capacity, from_);
  std::string text = length > 0 ? std::string(line, static_cast<size_t>(length - 1)) : "gone";
  std::free(line);
  return text;
}

}  // namespace skein::engine
