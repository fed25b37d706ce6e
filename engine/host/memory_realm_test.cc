#include "engine/host/memory_realm.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "engine/host/process_watch.h"

namespace skein::engine {
namespace {

TEST(MemoryRealm, IsThatOfAnotherProcessOfThisUserAndHost) {
  const std::string here = MemoryRealm();
  if (ThisProcess().empty()) GTEST_SKIP() << "needs /proc of this pid namespace";
  ASSERT_FALSE(here.empty());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string there = MemoryRealm();
    const ssize_t written = write(ends[1], there.data(), there.size());
    _exit(written == static_cast<ssize_t>(there.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string there(4096, '\0');
  there.resize(
      static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], there.data(), there.size()))));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(there, here);
  EXPECT_EQ(here.find(' '), std::string::npos) << here;
}

}  // namespace
}  // namespace skein::engine
