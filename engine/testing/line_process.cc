#include "engine/testing/line_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

LineProcess::LineProcess(std::vector<std::string> words) {
  signal(SIGPIPE, SIG_IGN);  // a process that died is heard, not felt
  int commands[2], answers[2];
  SKEIN_CHECK(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, commands[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(commands[0]);
  close(answers[1]);
  SKEIN_CHECK_MSG(error == 0, (words[0] + " must be in the test's data").c_str());
  to_ = fdopen(commands[1], "w");
  from_ = fdopen(answers[0], "r");
  SKEIN_CHECK(to_ != nullptr && from_ != nullptr);
}

LineProcess::~LineProcess() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::fclose(to_);
  std::fclose(from_);
}

void LineProcess::Tell(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
}

std::optional<std::string> LineProcess::Hear() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&line, &capacity, from_);
  std::optional<std::string> heard;
  if (length > 0) heard.emplace(line, static_cast<size_t>(length - 1));
  std::free(line);
  return heard;
}

bool LineProcess::Struck() {
  int status = 0;
  if (struck_ || waitpid(pid_, &status, WNOHANG | WUNTRACED) != pid_) return struck_;
  ended_ = !WIFSTOPPED(status);
  return struck_ = true;
}

void LineProcess::Continue() {
  struck_ = false;
  kill(pid_, SIGCONT);
}

}  // namespace skein::engine
