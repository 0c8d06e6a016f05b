#include "base/error_codes.h"

#include <algorithm>

namespace meshtrain {
namespace {

constexpr ErrorCode kCodes[] = {
    {"E100", "a config cannot be opened",
     "The path does not exist, is a folder, or may not be read. Paths after `extends` are relative "
     "to the file that names them."},
    {"E101", "the config is empty",
     "A config holds at least `model` and `data`. `meshtrain init quickstart > first.yaml` writes "
     "one that trains."},
    {"E102", "the config is too large",
     "Data do not belong in a config: put them into a file of their own (npy, csv, text) and "
     "name that under `data`."},
    {"E103", "the config is no UTF-8 text",
     "Save the file as UTF-8 without NUL bytes; the message says at which byte another encoding "
     "begins."},
    {"E104", "the YAML cannot be read",
     "A quote, a bracket or the indentation is wrong. YAML indents with spaces, writes `key: "
     "value` with a space, and items of one list in one column."},
    {"E105", "the file holds a second document",
     "One config to a file, without a `---` in between. Several files on the command line are "
     "merged, the later ones win."},
    {"E106", "nested too deep",
     "Maps, lists, blocks or uses within each other have a limit, so that no text can exhaust "
     "memory."},
    {"E107", "aliases expand to too much",
     "An alias contains itself, or nested aliases expand beyond the size limit of a config."},
    {"E108", "an alias without its anchor",
     "`*name` refers to an `&name` above it. A regular expression that begins with `*` must be "
     "quoted, and usually is meant as `.*`."},
    {"E109", "a key is repeated",
     "YAML readers differ in which of the two counts, so none is taken. Keep one."},
    {"E110", "a YAML tag", "Types follow from the keys here; write the value without `!tag`."},
    {"E111", "an unknown key, argument or variable",
     "The message lists the keys of the place and the nearest name. `meshtrain explain KEY` "
     "describes one."},
    {"E112", "a value of the wrong type, or a missing one",
     "The message says what the key takes. Text that looks like a number or like true/false needs "
     "quotes to be text."},
    {"E113", "a value that is not allowed here",
     "The type is right; the value, or its combination with another key, is not. The message names "
     "the range or the other key."},
    {"E114", "a value that YAML readers read differently",
     "`010`, `1_000`, `1,5`, `yes` or `None` mean one thing in one reader and another in the next. "
     "The message has the plain spelling."},
    {"E115", "a wrong shape",
     "Sizes are whole numbers from 1 on; `null` stands for an unknown size only where the message "
     "says so. The batch is never part of a shape."},
    {"E120", "a layer or initializer does not take this shape",
     "What comes in does not fit what the layer computes. `meshtrain summary` shows the shape "
     "after each layer."},
    {"E121", "the layers do not connect",
     "A name is unknown or taken, an input is missing, or layers go round in a circle."},
    {"E122", "an unknown class",
     "The message has the nearest names. What Keras has and this program does not is said so."},
    {"E123", "the loss does not fit its output",
     "Targets and outputs must have shapes that the loss can compare: class numbers for sparse "
     "losses, one-hot rows for the others. Sample weights have the shape of the loss values, or "
     "its first dimensions."},
    {"E124", "a metric or layer cannot be used so", "The message says what it would need."},
    {"E130", "`extends` cannot be followed",
     "It names files by relative paths, without a circle. Those outside of the config's folder end "
     "in "
     ".yaml or .yml."},
    {"E131", "an environment variable is not set or not read",
     "Set it, or give a default: `${env:NAME,DEFAULT}`. Names that end in KEY, TOKEN, SECRET or "
     "PASSWORD are not read: what a config reads goes into the run's folder and its report. Give a "
     "value that may be seen a variable of another name; `meshtrain validate` lists those read."},
    {"E132", "an expression cannot be evaluated",
     "`=expressions` know numbers, `+ - * / // % **`, a few functions, and the names of `vars`."},
    {"E140", "a wrong command line",
     "`meshtrain SUBCOMMAND --help` lists the flags; values of the config are set by `key=value` "
     "words."},
    {"E141", "the place for results is taken",
     "Runs are never overwritten. `--resume` continues the one that is there; another `-o` "
     "begins anew."},
    {"E142", "results cannot be written",
     "No permission, no space, or a file where a folder is needed. Nothing was started, or what is "
     "complete was kept."},
    {"E148", "no Slurm here",
     "`sbatch` submits the script, and PATH has none. On a login node of the cluster it works; the "
     "script can also be submitted there by hand."},
    {"E149", "a sweep whose config has changed",
     "The rows of a sweep are compared, so its runs share one config. More values may be added to "
     "a sweep when it is resumed; another config needs a new sweep."},
    {"E201", "a rule is no regular expression",
     "Rules are PCRE2 patterns that must match the whole path (with `layout_match: search` a part "
     "of "
     "it). `.` matches any character, `.*` any text."},
    {"E202", "a rule acts on nothing",
     "A rule that matches no variable is a mistake, and nothing would be sharded. `meshtrain plan` "
     "lists all paths. For a map that serves several models, `checks: {unmatched_rule: warn}` or "
     "`off` of `distribution` lets it pass."},
    {"E203", "two rules match one variable",
     "Which one counts would be a guess. Make one stricter, or add a rule with exactly that path, "
     "which wins."},
    {"E204", "a dimension does not divide over its axes",
     "Every device holds an equal shard. Take another axis or mesh size, another size of the "
     "layer, or `null` for that dimension."},
    {"E205", "a layout does not fit",
     "It names an axis that the mesh lacks, an axis twice, or has more entries than the tensor has "
     "dimensions."},
    {"E206", "a layout map without effect", "Only `type: ModelParallel` reads `layout_map`."},
    {"E210", "the mesh does not fit the devices",
     "A mesh needs as many devices as the product of its shape, over all processes. `meshtrain "
     "devices` lists what is here."},
    {"E211", "the batch does not split",
     "`batch_size` must divide over the axis of the batch, so that each device has as many "
     "samples. The message has the nearest sizes."},
    {"E300", "data cannot be opened",
     "The path does not exist or may not be read. Relative paths are those of `data.dir`, "
     "else of the config's folder."},
    {"E301", "no NumPy file",
     "The first bytes are not those of an .npy file, or of a version that is known."},
    {"E302", "an .npy file is cut off or its header is damaged", "Copy or write it again."},
    {"E303", "a type of elements that is not read",
     "Booleans, integers of 8 to 64 bits and floats of 16 to 64 bits are, uint64 up to 2^63; "
     "convert others with `astype`. Files of one pattern have one type."},
    {"E304", "arrays of a wrong shape",
     "The first dimension counts samples; files of one pattern have the same sample shape, and "
     "samples have elements."},
    {"E305", "more or fewer bytes than declared",
     "The header and the size of the file disagree: truncated, or more than one array in it."},
    {"E306", "a damaged archive",
     "The .npz, .tar or .gz ends early or its contents contradict its table. Download or write it "
     "again."},
    {"E307", "no IDX file, or a damaged one",
     "MNIST's files begin with 00 00 08 and the number of dimensions; `.gz` is unpacked while "
     "reading."},
    {"E310", "a csv whose columns or rows are wrong",
     "A column is missing or doubled, or a row has another number of fields. The message names "
     "line and column."},
    {"E311", "a missing or unreadable value in a csv",
     "Say what replaces missing numbers (`missing`), which id missing texts have (`mask_token`), "
     "or which texts mean missing (`missing_texts`)."},
    {"E312", "a label that is no class",
     "Labels count from 0 to the number of classes less one. The output layer has as many units as "
     "there are classes. Labels of BinaryCrossentropy are from 0 to 1. Words of a csv that a "
     "lookup does not know are no classes, either."},
    {"E313", "arrays of different lengths",
     "Inputs, targets and weights have as many samples as each other."},
    {"E314", "text or ids outside the vocabulary",
     "A character or id is none of the vocabulary's, or has no row in an `Embedding`, whose rows "
     "are 0 to `input_dim` less one. Give the vocabulary of all data, or another file."},
    {"E315", "NaN or infinity in the data",
     "The message names array, sample and feature. Clean the data, or give the column a "
     "replacement for missing values."},
    {"E316", "no samples are left",
     "A slice, a split or `validation_split` is empty. Each part needs at least one sample."},
    {"E317", "class weights cannot be used",
     "They need targets that are class numbers; weights of single samples belong in the data."},
    {"E318", "a damaged vocabulary or text",
     "A vocabulary lists each character, or text, once; texts are UTF-8."},
    {"E320", "no HDF5 file, or a damaged one",
     "It is read in a process of its own, so nothing else was harmed. Write it again with h5py."},
    {"E321", "data changed while they were used",
     "A run that resumes with other data would not be the run that began. Restore the files, or "
     "begin anew."},
    {"E322", "an image that cannot be read",
     "Damaged, truncated, of an unknown kind, or declared larger than its bytes could hold. The "
     "message names the file."},
    {"E323", "hosts read different data",
     "All processes must see the same files: a shared folder, or equal copies."},
    {"E324", "the data do not fit the model",
     "Names, number or shapes of the arrays are not those of the model's inputs and targets, or "
     "classes and vocabularies not those of the training data. `meshtrain data inspect` shows "
     "them."},
    {"E325", "a download failed or is not allowed",
     "The message says what to put where by hand. A partial file is kept, and the next try "
     "resumes there."},
    {"E326", "a downloaded file is another one",
     "Its size or SHA-256 is not the published one. Remove it to download it again."},
    {"E327", "an unknown kind of file",
     "Data: name the source, `{source: csv, path: ...}`; without it, the kind is taken from the "
     "first bytes. A tokenizer: the message names the part of tokenizer.json that is not read. A "
     "file of ids: llm.c's header has another version or byte order; write the file again with "
     "`meshtrain data tokenize`."},
    {"E400", "no checkpoint",
     "The folder has none, or none that verifies. `meshtrain inspect DIR` and `meshtrain verify "
     "DIR` say more."},
    {"E402", "a damaged manifest or data.json",
     "The list of a checkpoint's shards, or what a run learned from its training data, cannot be "
     "read. Use another checkpoint; `latest` finds the newest whole one. A run's data.json is also "
     "in each of its checkpoints."},
    {"E403", "a changed manifest or data.json",
     "Its checksum does not match: it was edited or damaged."},
    {"E404", "a weights or checkpoint file is missing or damaged",
     "The path is wrong, the file was moved or removed, or its size or checksum is not the one "
     "that was written. Resume from an older checkpoint; `meshtrain verify RUN` checks all of "
     "them."},
    {"E405", "a weights file that is not read",
     "Cut off, damaged, or of another kind. .safetensors, .npz, .weights.h5 and .keras are read."},
    {"E406", "a file or name that is refused",
     "It is a link or a special file, its name leads out of the checkpoint, or it would read other "
     "files, as links in HDF5 do."},
    {"E407", "shards do not cover their tensor",
     "Shards overlap, are missing, or have the wrong size: a checkpoint put together from two."},
    {"E408", "a checkpoint of a newer program",
     "Use the version that wrote it, which the message names, or a newer one."},
    {"E409", "a checkpoint that cannot be read now",
     "The system refused: no permission, too many open files, an error of the disk. It is left as "
     "it is, and no older one is taken for it."},
    {"E410", "weights of another model",
     "Shapes or paths differ. `--partial` takes what fits of a file or a checkpoint."},
    {"E411", "the model changed since the checkpoint",
     "A change of layers, loss or data would make another run. `--allow KEY` takes it as it is."},
    {"E412", "the optimizer changed since the checkpoint",
     "Its state does not fit. `--reset-optimizer` begins it anew and keeps the weights."},
    {"E413", "the place in the data cannot be found",
     "The data or their order changed. `--reset-cursor` begins the epoch anew."},
    {"E414", "a checkpoint with NaN or infinity",
     "Training never resumes from such a state. Use an earlier checkpoint."},
    {"E415", "a file that could run code",
     "Pickled files and Lambda layers can, so they are never read. Convert files to .safetensors "
     "where they were made; write the function of a Lambda as an expression."},
    {"E416", "a model that cannot be taken over",
     "The message names the layer, or the field of config.json, and what is not there."},
    {"E417", "a model that cannot be exported in this format",
     "The message names the part that Keras, ONNX or transformers cannot represent."},
    {"E420", "no space for a checkpoint",
     "Free some, write elsewhere (`-o`), or keep fewer (`checkpoint.keep`). Older checkpoints are "
     "untouched."},
    {"E421", "a checkpoint could not be saved",
     "The file system refused; older checkpoints are untouched."},
    {"E422", "an input/output error while saving",
     "The disk or its connection fails. Older checkpoints are untouched; look at the system's "
     "log."},
    {"E423", "a checkpoint that could not be read again",
     "Its manifest or its state would be longer than any that is read. Split fewer tensors, use a "
     "smaller mesh, or ask for less in the callbacks' state. Older checkpoints are untouched."},
    {"E452", "a folder that not all hosts share",
     "Each process writes its shards of a checkpoint into one folder. Use a shared file system, or "
     "`checkpoint: {gather: root}`: then hosts that do not see the folder send their shards to "
     "that of rank 0."},
    {"E455", "the run is in use",
     "Another process writes into it. Wait, stop it, or use another folder."},
    {"E456", "a checkpoint of that step is there already", "It is not replaced."},
    {"E457", "a checkpoint that not all hosts can read",
     "Rank 0 verified it, another one does not see the same files. Use a shared file system, or "
     "`checkpoint: {gather: root}`: then rank 0 sends them, and TMPDIR on the other hosts must "
     "have "
     "room for them."},
    {"E501", "NaN or infinity in training",
     "The loss or the weights are no numbers any more; that state was not saved. Try a smaller "
     "learning rate or clipping (`clipnorm`)."},
    {"E510", "copies of one value differ",
     "Two devices that must hold the same do not: memory or hardware failed, or libraries differ "
     "between hosts."},
    {"E520", "a run does not show what its config expects",
     "A bound of `expect` does not hold. The run is complete, with its weights and logs; the exit "
     "code is 7."},
    {"E601", "a process ended or stopped answering",
     "The message names rank, host and what it did last. Its own log, and `dmesg` on that host, "
     "say why."},
    {"E602", "a process hangs",
     "It did not come to what the others wait for. MESHTRAIN_COLLECTIVE_TIMEOUT is the limit in "
     "seconds."},
    {"E603", "processes do different things",
     "They are in different collectives: another config, program or environment there."},
    {"E604", "processes have different losses",
     "The weights of one differ from the others': hardware, or other libraries there."},
    {"E605", "MPI or NCCL reported an error",
     "Their message follows. A test of the network before training found that it does not carry "
     "what was sent, or a call failed."},
    {"E611", "processes were started differently",
     "Program, config, flags, GPUs and their libraries must be the same on all hosts, since "
     "results would differ; the message shows what does."},
    {"E612", "processes did not meet",
     "A rank did not connect in time: it failed earlier, or a firewall is in between. "
     "MESHTRAIN_JOIN_TIMEOUT is the limit."},
    {"E613", "no network address to meet at",
     "Set MESHTRAIN_NET_INTERFACE to one of the interfaces that the message lists."},
    {"E614", "processes cannot be started so",
     "The launcher, its environment or the machine lacks what the message names."},
    {"E615", "two processes share a GPU",
     "Start as many processes on a host as it has GPUs, each with its own LOCAL_RANK."},
    {"E620", "no GPU can be used",
     "The driver, the CUDA libraries or a device is missing; the message says which. `meshtrain "
     "devices` shows what is there."},
    {"E621", "devices on paper",
     "`64xH100` describes hardware for `plan`; training needs devices of this machine."},
    {"E630", "not enough GPU memory",
     "Found before anything was allocated. The message lists the largest tensors and the smallest "
     "changes that would fit."},
    {"E631", "not enough host memory",
     "Found before anything was allocated. Virtual devices share the memory of their host. The "
     "message lists the largest tensors, and what would fit."},
    {"E632", "not enough host memory for a save",
     "The copy of the state did not fit; training continued. Older checkpoints are untouched."},
    {"E640", "too few open files are allowed",
     "Each process needs a connection. Raise `ulimit -n`."},
    {"W111", "something that nothing uses",
     "A variable that no expression names, a block that no layer names, or a profile that changes "
     "nothing. What a file declares that others extend may stay unused."},
    {"W113", "`validation_split` is not used",
     "`data.validation` names the samples to validate with; one of the two is too much."},
    {"W114", "`None` read as `null`", "YAML writes `null`."},
    {"W123", "logits where probabilities are expected, or the reverse",
     "Without softmax or sigmoid an output is logits: say `from_logits: true`, or give the last "
     "layer the activation. Never both: such a model trains, and badly."},
    {"W124", "an output that is always the same",
     "Softmax makes the values of a sample add up to 1, so that a single one is 1. For yes or no "
     "take a sigmoid, for several classes a unit each."},
    {"W125", "a layer leaks later steps into the prediction",
     "The targets are the next ids, but a layer reads later steps: a backward RNN, a convolution "
     "with `padding: same`, or attention without a causal mask. The model learns to copy its "
     "input, its loss falls to almost 0, and it cannot generate text."},
    {"W126", "attention that stores its scores",
     "There is a score for each pair of steps, so that their memory grows with the square of the "
     "steps; training keeps them until the gradient. Attention over products computes block by "
     "block and stores no scores, unless they are an output. The warning starts at 1 MiB per "
     "batch."},
    {"W127", "class names that are not used",
     "`model.class_names` has another number of names than the output has classes, so that results "
     "name the classes of the data, or numbers."},
    {"W128", "a loss or metric of classes, and an output of one unit",
     "Categorical losses and accuracies tell several classes apart, each with a unit of its own. "
     "Of a single unit they are the same for every sample, so that nothing is learned."},
    {"W140", "a variable of the environment that does not count",
     "A flag or a word of the command line says something else for the same key."},
    {"W141", "an unknown variable of the environment",
     "Names that begin with MESHTRAIN_ are this program's; it reads none of that name. `meshtrain "
     "--help` lists them."},
    {"W202", "a pattern that matches no weight",
     "`exclude_from_weight_decay` and `exclude_layers` are searched for in the paths of weights; "
     "what is in none of them excludes nothing. `meshtrain plan` lists all paths."},
    {"W203", "a rule that acts on less than it says",
     "Its layer exists, but that variable does not, or another rule wins, or nothing has such a "
     "path and `checks: {unmatched_rule: warn}` lets it pass."},
    {"W205", "a layout that is not used",
     "DataParallel replicates every variable; `type: ModelParallel` reads the map. `zero_axes` say "
     "over what `zero: 1` to 3 split."},
    {"W206", "a layout with fewer entries than dimensions",
     "The entries that are left out at the end are `null`: `[model]` of a matrix splits its rows. "
     "Write all entries: `[model, null]`."},
    {"W207", "layouts over the axis that splits the batch",
     "On a mesh with one axis, that axis splits the batch, as in Keras. A weight sharded over it "
     "is stored in shards and all-gathered in each step (FSDP). For tensor parallelism, give the "
     "batch an axis of its own: `shape: [1, N], axis_names: [batch, model]`. For FSDP on "
     "purpose, set `batch_dim_name`."},
    {"W211", "the batch is split over another axis",
     "An override gave the mesh axes of other names. The batch stays with its axis as long as the "
     "mesh has one of that name, wherever it stands; else the first axis splits it."},
    {"W212", "a setting without effect",
     "It acts only together with another one, which is not there, or the run is too short for it. "
     "Often the other one was forgotten."},
    {"W312", "classes that a part of the data lacks",
     "Metrics over such a part say nothing of the class, and a class without training samples "
     "cannot be learned. Often the file is sorted and a split takes its end."},
    {"W316", "a batch larger than the data",
     "The data make one smaller batch, and an epoch is one step. Often a smaller batch learns more "
     "in an epoch."},
    {"W317", "a last batch that the devices do not share",
     "Its samples do not divide by the axes of the batch, so that each device computes all of "
     "them. "
     "Numbers are right; the step takes longer, and more memory."},
    {"W318", "samples that a stateful model leaves out",
     "Its layers take whole batches. With `data.remainder: drop`, validation and evaluation leave "
     "out the last samples where these fill no batch."},
    {"W319", "sorted classes without shuffling",
     "With `data.shuffle: false` a batch has the samples as they stand in the file. Batches of a "
     "single class train badly."},
    {"W322", "bad records that were left out",
     "`on_bad_record: skip` allows it, up to `max_bad_records`. The message names the first "
     "ones, and log.txt has them too."},
    {"W328", "a run that kept nothing of its training data",
     "It has no data.json, as runs of older versions, or it was removed. Ids of texts, class "
     "numbers and means are then taken from the training data as they are now, and results are "
     "wrong where these changed. Restore the data, or train anew."},
    {"W329", "inputs that are not scaled",
     "Values in the hundreds make the first steps far too large. Rescaling brings pixels to 0 ... "
     "1; Normalization learns mean and variance of each column."},
    {"W330", "a label among the features",
     "The model is shown what it is to predict, so that its metrics say nothing. Without "
     "`features` the label is never among them."},
    {"W331", "samples of `data.train` are validated or tested, too",
     "Both parts read the same source, and their `slice` or `split` overlap, or are missing. A "
     "model's results on samples that trained it do not measure other samples. The message counts "
     "the common samples and names both ranges. Data that are the training data on purpose get "
     "this "
     "warning, too; nothing else changes."},
    {"W332", "weights of samples that are not used",
     "The file has an array `sample_weight`, and the source does not name one, so that all samples "
     "count alike. Unlike x and y it has no default name."},
    {"W402", "a damaged checkpoint is passed over",
     "`initial_weights` names a run whose newest checkpoint does not verify. An older one is "
     "taken, and the steps between them are lost. `meshtrain verify RUN` says what is damaged."},
    {"W416", "a part of an imported model was not taken over",
     "The message names it; the rest was."},
    {"W501", "a loss that does not change, or grows",
     "Three epochs with the same loss, or ten times the loss of the first epoch. The learning "
     "rate, labels that do not belong to their samples, or unscaled inputs are the usual causes."},
    {"W502", "results that are not finite",
     "`evaluate` or `predict` computed NaN or infinity. Weights of a run that failed and numbers "
     "beyond the type that the model computes in are the usual causes."},
    {"W503", "a loss scale that skips most steps",
     "Under mixed_float16 a step whose gradients are not finite changes no weight, and halves the "
     "scale. A few such steps at the start are normal. Where most steps of an epoch are such, the "
     "scale began far too high, or the gradients are not finite at any scale."},
    {"W616", "the ranks of a host do not follow each other",
     "The last axes of the mesh, along which most is sent, then cross the network. The launcher "
     "decides: `mpirun --map-by slot`, `srun --distribution=block`. Slurm 22.05 also crashes at "
     "times when it starts such ranks; with SLURM_PMIX_FENCE=ring it did not."},
    {"W617", "the secret of a run can be guessed",
     "Processes of a run prove to each other that they know its secret. Without MESHTRAIN_TOKEN "
     "the secret is made of the port and the number of the job, which others can find out. A "
     "program that connects to rank 0 before the ranks do can read data and weights. On a "
     "network or a machine with other users set MESHTRAIN_TOKEN to the same random text for all "
     "ranks: `export MESHTRAIN_TOKEN=$(openssl rand -hex 32)` before `srun`; for a torchrun on "
     "each host, from a file that only you read."},
    {"W618", "rank 0 listens at all addresses of its host",
     "MASTER_ADDR is not an address of a network of that host, as with a service of Kubernetes or "
     "a name that leads to 127.0.1.1. MESHTRAIN_NET_INTERFACE names the network to use."},
    {"W620", "GPUs that are not used",
     "`devices: auto` takes GPUs where there is one for each device of the mesh and each process. "
     "Virtual devices on GPUs are written out: `gpu:0x8`. Without the program's GPU part it takes "
     "none; the message says how to get that."},
    {"W621", "`--hosts` or a file of hardware without an estimate",
     "`plan` estimates times only for `--devices 64xH100` and the like, and for `cpu:N` with a "
     "file of hardware. It does not measure this machine's GPUs."},
    {"W622", "a folder of compiled kernels that others can write",
     "What lies there runs on the GPU and in this process, so it must be this user's alone: `chmod "
     "go-w FOLDER`, or another MESHTRAIN_CACHE. Until then kernels are compiled anew each time."},
    {"W630", "a mask of steps is lost",
     "Embedding with mask_zero and Masking mark steps that are padding. Most layers pass the mask "
     "on, attention and the loss use it; this layer has no masks, as in Keras, so that what comes "
     "behind it takes padding for data. Move the layer, or weigh the samples. A loss or metric "
     "without a value for each step counts padding, too."},
    {"W631", "more memory than this host has",
     "`train` would refuse it here with E631. On a machine with more memory it runs."},
};

}  // namespace

std::span<const ErrorCode> error_codes() {
  return kCodes;
}

const ErrorCode* find_error_code(std::string_view code) {
  const auto found = std::find_if(std::begin(kCodes), std::end(kCodes),
                                  [&](const ErrorCode& entry) { return entry.code == code; });
  return found == std::end(kCodes) ? nullptr : found;
}

}  // namespace meshtrain
