#include "engine/host/process_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/host/testing/no_descriptors_left.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// A process that does nothing until it is killed.
class Child {
 public:
  Child() {
    int fds[2];
    SKEIN_CHECK(pipe(fds) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string name = ThisProcess();
      SKEIN_CHECK(write(fds[1], name.data(), name.size()) == static_cast<ssize_t>(name.size()));
      for (;;) pause();
    }
    char name[1000];
    const ssize_t bytes = read(fds[0], name, sizeof name);
    SKEIN_CHECK(bytes > 0);
    name_.assign(name, static_cast<size_t>(bytes));
    close(fds[0]);
    close(fds[1]);
  }
  ~Child() {
    Kill();
    Reap();
  }

  const std::string& name() const { return name_; }
  void Kill() const { kill(pid_, SIGKILL); }
  void AwaitEnd() const {
    siginfo_t info{};
    SKEIN_CHECK(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);
  }
  void Reap() const { waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_ = -1;
  std::string name_;
};

bool Readable(const ProcessWatch& watch, int wait_ms) {
  pollfd fd = {watch.fd(), POLLIN, 0};
  return poll(&fd, 1, wait_ms) == 1;
}

TEST(ProcessWatchTest, TellsOfAProcessThatNobodyHasWaitedFor) {
  const Child child, other;
  ProcessWatch watch;
  int token = 0, other_token = 0;
  EXPECT_TRUE(watch.Add(child.name(), &token));
  EXPECT_TRUE(watch.Add(other.name(), &other_token));
  EXPECT_FALSE(Readable(watch, 0));
  EXPECT_TRUE(watch.Ended().empty());
  child.Kill();
  ASSERT_TRUE(Readable(watch, 60000));
  EXPECT_EQ(watch.Ended(), std::vector<void*>{&token});
  EXPECT_FALSE(Readable(watch, 0));
  EXPECT_TRUE(watch.Ended().empty());
}

TEST(ProcessWatchTest, TellsNothingOfWhomItNoLongerWatches) {
  const Child child;
  ProcessWatch watch;
  int token = 0;
  EXPECT_TRUE(watch.Add(child.name(), &token));
  watch.Remove(&token);
  child.Kill();
  child.Reap();
  EXPECT_FALSE(Readable(watch, 0));
  EXPECT_TRUE(watch.Ended().empty());
}

TEST(ProcessWatchTest, KnowsTheNumberOfWhomItSees) {
  EXPECT_EQ(VisibleProcess(ThisProcess()), getpid());
  EXPECT_EQ(VisibleProcess(""), std::nullopt);
  EXPECT_EQ(VisibleProcess("another-host/pid:[1] 1 1"), std::nullopt);
}

TEST(ProcessWatchTest, WhoHasNoDescriptorsLeftWatchesWhenItHas) {
  const Child child, other;
  ProcessWatch watch;
  int token = 0, other_token = 0;
  {
    const NoDescriptorsLeft none;
    EXPECT_TRUE(watch.Add(child.name(), &token));
    EXPECT_TRUE(watch.Add(other.name(), &other_token));
    EXPECT_TRUE(watch.Ended().empty());
    watch.Remove(&other_token);
  }
  EXPECT_TRUE(watch.Ended().empty());
  child.Kill();
  other.Kill();
  ASSERT_TRUE(Readable(watch, 60000));
  EXPECT_EQ(watch.Ended(), std::vector<void*>{&token});
}

TEST(ProcessWatchTest, WhoHadNoDescriptorsLeftHearsOfAnEndMeanwhile) {
  const Child child;
  ProcessWatch watch;
  int token = 0;
  {
    const NoDescriptorsLeft none;
    EXPECT_TRUE(watch.Add(child.name(), &token));
    child.Kill();
    child.Reap();
  }
  EXPECT_EQ(watch.Ended(), std::vector<void*>{&token});
}

TEST(ProcessWatchTest, KnowsWhoHasEnded) {
  const Child child;
  EXPECT_FALSE(HasEnded(child.name()));
  child.Kill();
  child.AwaitEnd();
  EXPECT_TRUE(HasEnded(child.name()));
  child.Reap();
  EXPECT_FALSE(ProcessWatch().Add(child.name(), nullptr));
  EXPECT_TRUE(HasEnded(child.name()));
}

// A later process of the same number.
TEST(ProcessWatchTest, AProcessThatStartedAtAnotherTimeIsAnother) {
  const Child child;
  EXPECT_FALSE(ProcessWatch().Add(child.name() + "0", nullptr));
  EXPECT_TRUE(HasEnded(child.name() + "0"));
}

TEST(ProcessWatchTest, TakesWhomItCannotSeeForAlive) {
  ProcessWatch watch;
  EXPECT_TRUE(watch.Add(ThisProcess(), nullptr));
  EXPECT_TRUE(watch.Add("", nullptr));
  EXPECT_TRUE(watch.Add("another-host/pid:[1] 1 1", nullptr));
  EXPECT_TRUE(watch.Add("no sense", nullptr));
  EXPECT_FALSE(Readable(watch, 0));
  EXPECT_FALSE(HasEnded("another-host/pid:[1] 1 1"));
  EXPECT_FALSE(HasEnded("no sense"));
}

}  // namespace
}  // namespace skein::engine
