#include "engine/host/host_wire.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/host/testing/no_descriptors_left.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool Write(HostChannel* channel, const std::string& header, const std::string& data) {
  const std::span<const std::byte> parts[] = {Bytes(header), Bytes(data)};
  return channel->Write(parts);
}

std::vector<std::string> ReadAll(HostWire* wire) {
  std::vector<std::string> messages;
  while (wire->Read(16, [&](std::span<const std::byte> message) {
    messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
  }) > 0) {
  }
  return messages;
}

bool Readable(const HostWire& wire, int wait_ms) {
  pollfd fd = {wire.fd(), POLLIN, 0};
  return poll(&fd, 1, wait_ms) == 1;
}

int Rings() {
  std::ifstream maps("/proc/self/maps");
  int rings = 0;
  for (std::string line; std::getline(maps, line);) {
    rings += line.find("skein-ring") != std::string::npos ? 1 : 0;
  }
  return rings;
}

std::unique_ptr<HostWire> Make() {
  auto wire = HostWire::Make();
  SKEIN_CHECK(wire != nullptr);
  return wire;
}

std::unique_ptr<HostChannel> Connect(HostWire* from, const std::string& to) {
  auto channel = from->Connect(to);
  SKEIN_CHECK(channel.ok());
  return *std::move(channel);
}

// A process that runs `body` until it is killed, and says so by the pipe when it has begun.
class Child {
 public:
  explicit Child(const std::function<void(const std::function<void()>& tell)>& body) {
    int fds[2];
    SKEIN_CHECK(pipe(fds) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body([&] { SKEIN_CHECK(write(fds[1], "x", 1) == 1); });
      _exit(1);
    }
    close(fds[1]);
    char told = 0;
    SKEIN_CHECK(read(fds[0], &told, 1) == 1);
    close(fds[0]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

TEST(HostWireTest, MessagesComeInOrderAndWholeAsOftenAsTheRingIsFull) {
  const auto from = Make(), to = Make();
  const auto channel = Connect(from.get(), to->name());
  std::vector<std::string> sent, came;
  for (size_t i = 0; i < 200; ++i) {
    sent.push_back(std::string(i * 997 % 60000, static_cast<char>('a' + i % 26)));
    const std::string header = std::to_string(i);
    while (!Write(channel.get(), header, sent.back())) {
      const auto some = ReadAll(to.get());
      ASSERT_FALSE(some.empty());
      came.insert(came.end(), some.begin(), some.end());
    }
    sent.back() = header + sent.back();
  }
  const auto rest = ReadAll(to.get());
  came.insert(came.end(), rest.begin(), rest.end());
  EXPECT_EQ(came, sent);
}

TEST(HostWireTest, WhoSleepsIsWokenByAMessage) {
  const auto from = Make(), to = Make();
  const auto channel = Connect(from.get(), to->name());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(to->Sleep());
    EXPECT_FALSE(Readable(*to, 0));
    ASSERT_TRUE(Write(channel.get(), "", "good morning"));
    EXPECT_TRUE(Readable(*to, 60000));
    EXPECT_FALSE(to->Sleep());
    to->Wake();
    EXPECT_EQ(ReadAll(to.get()), std::vector<std::string>{"good morning"});
    ASSERT_TRUE(Write(channel.get(), "", "seen without being told"));
    EXPECT_FALSE(Readable(*to, 0));
    EXPECT_EQ(ReadAll(to.get()), std::vector<std::string>{"seen without being told"});
  }
}

TEST(HostWireTest, WhoSleepsIsWokenWhenThereIsRoom) {
  const auto from = Make(), to = Make();
  const auto channel = Connect(from.get(), to->name());
  const std::string data(60000, 'x');
  ASSERT_TRUE(Write(channel.get(), "", data));
  EXPECT_FALSE(channel->AwaitRoom(data.size()));
  while (Write(channel.get(), "", data)) {
  }
  ASSERT_TRUE(from->Sleep() && channel->AwaitRoom(data.size()));
  EXPECT_FALSE(Readable(*from, 0));
  ReadAll(to.get());
  EXPECT_TRUE(Readable(*from, 60000));
  from->Wake();
  EXPECT_TRUE(Write(channel.get(), "", data));
}

// Each process that is killed is in the midst of its first words or of later ones.
TEST(HostWireTest, WhoIsKilledWhileItWritesStopsNobodyElse) {
  const auto to = Make(), other = Make();
  const auto channel = Connect(other.get(), to->name());
  const std::string name = to->name();
  for (int i = 0; i < 100; ++i) {
    {
      const Child child([&](const auto& tell) {
        const auto wire = Make();
        if (i % 2 == 0) tell();
        const auto to_parent = Connect(wire.get(), name);
        if (i % 2 != 0) tell();
        for (size_t n = 0;; n = (n + 1009) % 60000) {
          Write(to_parent.get(), "", std::string(n, 'k'));
        }
      });
      for (int k = 0; k < i; ++k) {
        for (const auto& message : ReadAll(to.get())) {
          EXPECT_EQ(message, std::string(message.size(), 'k'));
        }
      }
    }
    ASSERT_TRUE(Write(channel.get(), "", "alive"));
    const auto came = ReadAll(to.get());
    EXPECT_EQ(std::count(came.begin(), came.end(), "alive"), 1);
    EXPECT_TRUE(to->Sleep());
    ASSERT_TRUE(Write(channel.get(), "", "alive"));
    EXPECT_TRUE(Readable(*to, 60000));
    to->Wake();
    ReadAll(to.get());
  }
}

TEST(HostWireTest, WhoHasNoDescriptorsLeftReadsWhenItHas) {
  const auto from = Make(), to = Make();
  const auto channel = Connect(from.get(), to->name());
  {
    const NoDescriptorsLeft none;
    ASSERT_TRUE(Write(channel.get(), "", "patience"));
    EXPECT_TRUE(ReadAll(to.get()).empty());
    EXPECT_FALSE(to->Sleep());
  }
  EXPECT_EQ(ReadAll(to.get()), std::vector<std::string>{"patience"});
  EXPECT_TRUE(to->Sleep());
}

TEST(HostWireTest, WhoHasNoDescriptorsLeftConnectsWhenItHas) {
  const auto from = Make(), to = Make();
  {
    const NoDescriptorsLeft none;
    EXPECT_TRUE(absl::IsResourceExhausted(from->Connect(to->name()).status()));
  }
  EXPECT_TRUE(from->Connect(to->name()).ok());
}

TEST(HostWireTest, WhoHasNoDescriptorsLeftWakesTheWriter) {
  const auto from = Make(), to = Make();
  const auto channel = Connect(from.get(), to->name());
  const std::string data(60000, 'x');
  ASSERT_TRUE(Write(channel.get(), "", data));
  ReadAll(to.get());
  while (Write(channel.get(), "", data)) {
  }
  ASSERT_TRUE(from->Sleep() && channel->AwaitRoom(data.size()));
  const NoDescriptorsLeft none;
  ReadAll(to.get());
  EXPECT_TRUE(Readable(*from, 1000));
}

TEST(HostWireTest, ForgetsTheRingsOfWhoLeftAtTheNextLetter) {
  const auto to = Make(), from = Make();
  int before = 0;
  for (int i = 0; i < 10; ++i) {
    const auto channel = Connect(from.get(), to->name());
    ASSERT_TRUE(Write(channel.get(), "", "once"));
    EXPECT_EQ(ReadAll(to.get()), std::vector<std::string>{"once"});
    if (i == 1) before = Rings();
    if (i > 1) {
      EXPECT_EQ(Rings(), before);
    }
  }
}

// And not before it has read their last words.
TEST(HostWireTest, ForgetsTheRingsOfWhoEndedBeforeASleep) {
  const auto to = Make();
  const int before = Rings();
  std::string name;
  {
    const std::string to_name = to->name();
    const Child child([&](const auto& tell) {
      const auto wire = Make();
      const auto channel = Connect(wire.get(), to_name);
      SKEIN_CHECK(Write(channel.get(), "", ThisProcess()));
      tell();
      pause();
    });
    EXPECT_EQ(to->Read(0, [](auto) {}), 0);  // takes the letter
  }
  EXPECT_GT(Rings(), before);
  EXPECT_FALSE(to->Sleep());
  EXPECT_FALSE(to->HasUnread(ThisProcess()));
  to->Read(1, [&](std::span<const std::byte> message) {
    name.assign(reinterpret_cast<const char*>(message.data()), message.size());
    EXPECT_TRUE(to->HasUnread(name));
  });
  EXPECT_FALSE(name.empty() || to->HasUnread(name));
  EXPECT_TRUE(to->Sleep());
  EXPECT_EQ(Rings(), before);
}

TEST(HostWireTest, ConnectsOnlyToWhomItSees) {
  const auto wire = Make();
  EXPECT_FALSE(wire->Connect("").ok());
  EXPECT_FALSE(wire->Connect("no sense").ok());
  EXPECT_FALSE(wire->Connect("another-host/pid:[1] 1 1|3 4 5").ok());
  EXPECT_FALSE(wire->Connect(ThisProcess() + "|0 0 5").ok());
  std::string gone = Make()->name();
  EXPECT_FALSE(wire->Connect(gone).ok());
  const std::string mine = wire->name();
  EXPECT_TRUE(wire->Connect(mine).ok());
  EXPECT_FALSE(wire->Connect(mine.substr(0, mine.size() - 1)).ok());  // another token
}

}  // namespace
}  // namespace skein::engine
