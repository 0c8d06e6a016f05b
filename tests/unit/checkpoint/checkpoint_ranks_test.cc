// Checkpoints of several processes: who writes what, what all come to, and restoring on any number
// of them.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <new>
#include <set>

#include "checkpoint/replicas.h"
#include "checkpoint/restore.h"
#include "checkpoint_case.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"

namespace meshtrain {
namespace {

using test::MeshCase;
using test::Stored;
using test::TempFolder;
namespace fs = std::filesystem;

using Group = std::shared_ptr<ThreadGroup>;

// Numbers of processes that a mesh splits over.
std::vector<int> sizes_of(const MeshCase& mesh) {
  std::vector<int> out;
  for (const int size : {1, 2, 3, 4, 6}) {
    try {
      MeshPart(test::mesh_of(mesh), size, 0);
      out.push_back(size);
    } catch (const Error&) {
    }
  }
  return out;
}

MeshPart part_of(const MeshCase& mesh, const Group& group) {
  return MeshPart(test::mesh_of(mesh), group->size(), group->rank());
}

SaveOptions options_of(const Group& group) {
  return {.rank = group->rank(),
          .name = fmt::format("rank {}", group->rank()),
          .all_gather = [group](const std::string& mine) { return group->all_gather(mine); }};
}

// What each process came to. Those of `blind` know another folder, which is not there.
std::vector<SaveResult> save_as(int size, const std::string& folder, const MeshCase& mesh,
                                int64_t step,
                                const std::function<void(Stored&, SaveOptions&)>& before = nullptr,
                                const std::set<int>& blind = {}) {
  std::vector<SaveResult> results(static_cast<size_t>(size));
  run_as_processes(size, [&](const Group& group) {
    Stored stored(mesh, 1, part_of(mesh, group), group);
    SaveOptions options = options_of(group);
    if (!blind.empty()) {
      options.sees_folder = blind.count(group->rank()) == 0;
      options.part_bytes = 100;
      options.gather = options.all_gather;
    }
    if (before) {
      before(stored, options);
    }
    const Snapshot snapshot(stored.store);
    results[static_cast<size_t>(group->rank())] = write_checkpoint(
        options.sees_folder ? folder : "/not/there", snapshot, test::notes_of(step), options);
  });
  return results;
}

// What each of some processes should hold, and memory for it.
struct Readers {
  Readers(const MeshCase& mesh, int size) {
    for (int rank = 0; rank < size; ++rank) {
      const MeshPart part(test::mesh_of(mesh), size, rank);
      expected.push_back(std::make_unique<Stored>(mesh, 1, part));
      restored.push_back(std::make_unique<Stored>(mesh, 99, part));
    }
  }

  // Variables that did not get the bytes that they should have.
  int count_wrong(const CheckpointReader& reader) {
    int wrong = 0;
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      VariableStore& store = restored[rank]->store;
      for (int v = 0; v < static_cast<int>(store.variables().size()); ++v) {
        const auto bytes = static_cast<size_t>(store.map(v).total_bytes());
        const Variable& variable = store.variables()[static_cast<size_t>(v)];
        std::memset(store.data(v), 0xa5, bytes);
        read_shards(reader, *reader.find(checkpoint_path(variable)), store, v);
        wrong += std::memcmp(store.data(v), expected[rank]->store.data(v), bytes) != 0 ? 1 : 0;
      }
    }
    return wrong;
  }

  std::vector<std::unique_ptr<Stored>> expected, restored;
};

TEST_CASE("what any number of processes saved any number of them loads byte for byte") {
  std::vector<Readers> all_readers;
  for (const MeshCase& mesh : test::mesh_cases()) {
    for (const int size : sizes_of(mesh)) {
      all_readers.emplace_back(mesh, size);
    }
  }
  size_t pairs = 0;
  for (const MeshCase& from : test::mesh_cases()) {
    for (const int size : sizes_of(from)) {
      CAPTURE(from.kernel);
      CAPTURE(size);
      const TempFolder folder;
      for (const SaveResult& result : save_as(size, folder.path(), from, 7)) {
        REQUIRE_MESSAGE(result.saved, result.error);
      }
      const CheckpointReader reader(folder.file("000007"));
      reader.verify();
      for (size_t r = 0; r < all_readers.size(); ++r, ++pairs) {
        CAPTURE(r);
        CHECK(all_readers[r].count_wrong(reader) == 0);
      }
    }
  }
  CHECK(pairs == all_readers.size() * all_readers.size());
  CHECK(pairs > 500);
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    out.insert(fs::relative(entry.path(), folder).string());
  }
  return out;
}

TEST_CASE("processes that do not see the folder send their files, and the checkpoint is the same") {
  int saves = 0;
  for (const MeshCase& mesh : test::mesh_cases()) {
    for (const int size : sizes_of(mesh)) {
      CAPTURE(mesh.kernel);
      CAPTURE(size);
      Readers readers(mesh, size);
      const TempFolder whole;
      REQUIRE(save_as(size, whole.path(), mesh, 7)[0].saved);
      std::set<int> all, some;
      for (int rank = 1; rank < size; ++rank) {
        all.insert(rank);
        (rank % 2 == 1 ? some : all).insert(rank);
      }
      for (const std::set<int>& blind : {all, some}) {
        const TempFolder folder;
        for (const SaveResult& result : save_as(size, folder.path(), mesh, 7, nullptr, blind)) {
          REQUIRE_MESSAGE(result.saved, result.error);
        }
        CHECK(files_in(folder.path()) == files_in(whole.path()));
        const CheckpointReader reader(folder.file("000007"));
        reader.verify();
        CHECK(readers.count_wrong(reader) == 0);
        ++saves;
      }
    }
  }
  CHECK(saves > 30);
}

TEST_CASE("a file that cannot be written by rank 0 ends the save of those that send it") {
  const TempFolder folder;
  const MeshCase& mesh = test::mesh_cases()[1];
  std::atomic<int> rounds{0};
  const auto occupy = [&](Stored& stored, SaveOptions& options) {
    const std::string name = Snapshot(stored.store).files().at(0).name;
    const std::string path = folder.file("tmp.000001.0123abcd/" + name);
    options.gather = [&rounds, path, rank = options.rank, inner = options.gather,
                      first = true](const std::string& mine) mutable {
      if (first && rank == 1) {
        fs::create_directory(path);
      }
      first = false;
      rounds += rank == 0 ? 1 : 0;
      return inner(mine);
    };
  };
  for (const SaveResult& result : save_as(2, folder.path(), mesh, 1, occupy, {1})) {
    CHECK(!result.saved);
    CHECK(result.error.find("step 1 was not saved: rank 0: cannot create") != std::string::npos);
  }
  CHECK(rounds == 2);  // what came first could not be written; then rank 0 says so
  CHECK(folder.num_files() == 0);
}

TEST_CASE("bytes that change on their way to rank 0 fail the save") {
  const TempFolder folder;
  const auto flip = [](Stored&, SaveOptions& options) {
    if (options.rank == 1) {
      options.gather = [inner = options.gather](std::string mine) {
        if (!mine.empty()) {
          mine.back() ^= 1;
        }
        return inner(mine);
      };
    }
  };
  for (const SaveResult& result : save_as(2, folder.path(), test::mesh_cases()[1], 1, flip, {1})) {
    CHECK(!result.saved);
    CHECK(result.error.find("[E422] step 1 was not saved: rank 0: other bytes came") == 0);
  }
  CHECK(folder.num_files() == 0);
}

TEST_CASE("a process that fails while it sends fails the save for all") {
  const TempFolder folder;
  const auto exhaust = [](Stored&, SaveOptions& options) {
    if (options.rank == 2) {
      options.gather = [inner = options.gather, calls = 0](const std::string& mine) mutable {
        const auto all = inner(mine);
        if (++calls == 2) {
          throw std::bad_alloc();
        }
        return all;
      };
    }
  };
  const MeshCase mesh = {{4}, {"a"}, "[null, a]", "[a]"};
  for (const SaveResult& result : save_as(4, folder.path(), mesh, 1, exhaust, {2, 3})) {
    CHECK(result.error == "[E632] step 1 was not saved: rank 2: out of memory");
  }
  CHECK(folder.num_files() == 0);
}

TEST_CASE(
    "each distinct shard is written by one of the processes that hold it and all write about "
    "equally") {
  const MeshCase replicated = {{4}, {"a"}, "[null, null]", "[null]"};
  const MeshCase mixed = {{2, 2}, {"a", "b"}, "[a, null]", "[b]"};
  for (const MeshCase& mesh : {replicated, mixed}) {
    CAPTURE(mesh.kernel);
    std::mutex mutex;
    std::set<std::pair<size_t, size_t>> written;
    std::vector<size_t> bytes(4);
    size_t shards = 0, all = 0;
    run_as_processes(4, [&](const Group& group) {
      Stored stored(mesh, 1, part_of(mesh, group), group);
      const Snapshot snapshot(stored.store);
      const std::lock_guard lock(mutex);
      shards = 0;
      for (const CheckpointTensor& tensor : snapshot.tensors()) {
        shards += tensor.shards.size();
      }
      for (const Snapshot::File& file : snapshot.files()) {
        CHECK(file.name.find(fmt::format("-rank-{:05}-", group->rank())) != std::string::npos);
        for (const Snapshot::Shard& shard : file.shards) {
          CHECK(written.insert({shard.tensor, shard.index}).second);
          CHECK(snapshot.tensors()[shard.tensor].shards[shard.index].file == file.name);
          bytes[static_cast<size_t>(group->rank())] += shard.num_bytes;
          all += shard.num_bytes;
        }
      }
      CHECK(snapshot.copied_bytes() <= snapshot.num_bytes() + 64 * 7);
    });
    CHECK(written.size() == shards);
    // The two kernels are most of it: none is split further than its layout says.
    const size_t kernel = 24 * 48 * 4;
    for (const size_t each : bytes) {
      CHECK(each <= std::max(all / 4 + kernel / 2, kernel));
    }
  }
}

TEST_CASE("a process that cannot write fails the save for all and the one before stays") {
  const TempFolder folder;
  const MeshCase& mesh = test::mesh_cases()[6];
  REQUIRE(save_as(4, folder.path(), mesh, 1)[0].saved);
  const auto occupy = [&](Stored& stored, SaveOptions& options) {
    if (options.rank != 1) {
      return;
    }
    const std::string name = Snapshot(stored.store).files().at(0).name;
    options.all_gather = [&folder, name, inner = options.all_gather,
                          first = true](const std::string& mine) mutable {
      const std::vector<std::string> all = inner(mine);
      if (first) {  // the folder is there now
        fs::create_directory(folder.file("tmp.000002.0123abcd/" + name));
      }
      first = false;
      return all;
    };
  };
  for (const SaveResult& result : save_as(4, folder.path(), mesh, 2, occupy)) {
    CHECK(!result.saved);
    CHECK(result.error.find("step 2 was not saved: rank 1: cannot create") != std::string::npos);
  }
  CHECK(folder.num_files() == 1);  // 000001
  const NewestCheckpoint newest = newest_checkpoint(folder.path());
  REQUIRE(newest.reader != nullptr);
  CHECK(newest.reader->manifest().step == 1);
}

TEST_CASE("a file that rank 0 does not see as it was written fails the save") {
  const TempFolder folder;
  const MeshCase& mesh = test::mesh_cases()[1];
  const auto lose = [&](Stored& stored, SaveOptions& options) {
    if (options.rank != 1) {
      return;
    }
    const std::string path =
        folder.file("tmp.000001.0123abcd/" + Snapshot(stored.store).files().at(0).name);
    options.all_gather = [path, inner = options.all_gather,
                          call = 0](const std::string& mine) mutable {
      if (++call == 2) {
        fs::resize_file(path, fs::file_size(path) - 1);
      }
      return inner(mine);
    };
  };
  for (const SaveResult& result : save_as(2, folder.path(), mesh, 1, lose)) {
    CHECK(!result.saved);
    CHECK(result.error.find("[E422] step 1 was not saved") != std::string::npos);
  }
  CHECK(folder.num_files() == 0);
}

TEST_CASE("an error of any kind on one process fails the save for all") {
  const TempFolder folder;
  const MeshCase& mesh = test::mesh_cases()[1];
  const auto exhaust = [](Stored&, SaveOptions& options) {
    options.before_commit = [] { throw std::bad_alloc(); };
  };
  for (const SaveResult& result : save_as(2, folder.path(), mesh, 1, exhaust)) {
    CHECK(result.error == "[E632] step 1 was not saved: rank 0: out of memory");
  }
  const auto spoil = [](Stored& stored, SaveOptions& options) {
    if (options.rank == 1) {  // a name that is no UTF-8 is no key of a shard's head
      const_cast<Variable&>(stored.store.variables()[0]).path = "\xff";
    }
  };
  for (const SaveResult& result : save_as(2, folder.path(), mesh, 1, spoil)) {
    CHECK(result.error.find("[E421] step 1 was not saved: rank 1: ") == 0);
  }
  CHECK(folder.num_files() == 0);
}

TEST_CASE("a save commits until its checkpoint has its name or an error") {
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    const TempFolder folder;
    std::atomic<bool> is_committing{false};
    bool was_committing = false;
    const auto watch = [&](Stored&, SaveOptions& options) {
      if (options.rank != 0) {
        return;
      }
      options.is_committing = &is_committing;
      options.before_commit = [&] {
        was_committing = is_committing;
        if (fails) {
          throw std::bad_alloc();
        }
      };
      options.all_gather = [&is_committing, inner = options.all_gather](const std::string& mine) {
        CHECK(!is_committing);
        return inner(mine);
      };
    };
    CHECK(save_as(2, folder.path(), test::mesh_cases()[1], 1, watch)[1].saved == !fails);
    CHECK(was_committing);
  }
}

TEST_CASE("values that are not finite on one process keep the save from all") {
  const TempFolder folder;
  const auto spoil = [](Stored& stored, SaveOptions& options) {
    HostTensor kernel = test::content_of(stored.store.variables()[0], 1);
    kernel.set(kernel.size() - 1, std::numeric_limits<double>::quiet_NaN());
    stored.store.write(0, kernel);
    (void)options;
  };
  for (const SaveResult& result : save_as(2, folder.path(), test::mesh_cases()[1], 4, spoil)) {
    CHECK(!result.saved);
    CHECK(result.non_finite == "d/kernel has 1 NaN");
  }
  CHECK(fs::is_directory(folder.file("rejected/000004")));
  CHECK(newest_checkpoint(folder.path()).reader == nullptr);
}

TEST_CASE("a bit that flipped in one copy is found and named before the save is committed") {
  const MeshCase mesh = {{4}, {"a"}, "[null, null]", "[null]"};
  const TempFolder folder;
  const auto flip = [](Stored& stored, SaveOptions& options) {
    if (options.rank == 2) {
      stored.store.data(3)[100] ^= std::byte{4};
    }
  };
  for (const SaveResult& result : save_as(4, folder.path(), mesh, 4, flip)) {
    CHECK(!result.saved);
    CHECK(result.unequal == "`adam/d_kernel_momentum` differs between rank 0 and rank 2");
  }
  CHECK(folder.num_files() == 0);
  REQUIRE(save_as(4, folder.path(), mesh, 4)[3].saved);
}

TEST_CASE("replicas are compared among those that hold the same shard") {
  // Shards of the kernel over `b`: ranks 0 and 2 hold the first, 1 and 3 the second.
  const MeshCase mesh = {{2, 2}, {"a", "b"}, "[b, null]", "[[a, b]]"};
  run_as_processes(4, [&](const Group& group) {
    Stored stored(mesh, 1, part_of(mesh, group), group);
    const auto compare = [&] {
      return replica_difference(stored.store, group->all_gather(replica_hashes(stored.store)));
    };
    CHECK(compare().empty());
    const auto flip = [&](int variable) { stored.store.data(variable)[0] ^= std::byte{1}; };
    if (group->rank() == 3) {
      flip(0);
    }
    CHECK(compare() == "`d/kernel` differs between rank 1 and rank 3");
    if (group->rank() == 3) {
      flip(0);
    }
    flip(1);  // split over all: nobody else has it
    CHECK(compare().empty());
  });
}

}  // namespace
}  // namespace meshtrain
